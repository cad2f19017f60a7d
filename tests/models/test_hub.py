"""Models go up to a hub and come down again as they were; what can go wrong is told in one line."""

import random
import socket
from pathlib import Path

import pytest
from huggingface_hub import constants

from nmt.errors import UserError
from nmt.models import hub as client
from nmt.models.hub import Address, failure_of, fetch, is_address, parse_address, results_folder, upload
from tests.hub_stand_in import LARGE, ROUTES, Hub, Repository
from tests.messages import error_message

KNOWN = ("weights.bin", "config.yaml", "joint.model", "README.md")
TOY = Address("me/toy")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    content = {"weights.bin": random.randbytes(30_000), "config.yaml": b"a: 1\n", "README.md": b"---\na: 1\n---\n# A\n"}
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    return [tmp_path / name for name in content]


def send(files: list[Path], address: Address = TOY, *, private: bool = False, message: str = "a message") -> str:
    return upload(files, address, KNOWN, private=private, message=message)


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("hub:me/toy", Address("me/toy")),
        ("me/toy", Address("me/toy")),
        ("hub:me/toy@v1.0", Address("me/toy", "v1.0")),
        ("hub:A-b_c.d/e@refs/pr/3", Address("A-b_c.d/e", "refs/pr/3")),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == f"hub:{text.removeprefix('hub:')}"


@pytest.mark.parametrize(
    "text",
    [
        "hub:",
        "hub:toy",
        "hub:me/toy/x",
        "hub:me/",
        "hub:me/toy@",
        "me toy/a",
        "hub://me/toy",
        "../toy",
        "./..",
        "me/..",
    ],
)
def test_what_is_no_address(text: str) -> None:
    assert error_message(parse_address, text) == (
        f"{text} is no model of the hub: write hub:USER/NAME, or hub:USER/NAME@REVISION"
    )


def test_folders_are_no_addresses() -> None:
    assert [is_address(path) for path in ("hub:me/toy", Path("hub:me/toy"), "outputs/latest", "hub")] == [1, 1, 0, 0]
    assert results_folder("hub:me/toy") == Path("outputs/hub/me/toy")
    assert results_folder("hub:me/toy@a/b") == Path("outputs/hub/me/toy@a_b")


def test_what_goes_up_comes_down_again(hub: Hub, files: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
    assert send(files) == f"{hub.endpoint}/me/toy"
    assert hub.messages == ["a message"]  # one commit
    assert list(hub.large.values()) == [files[0].read_bytes()]
    assert capfd.readouterr() == ("", "")
    before = {path.name: path.read_bytes() for path in files}
    assert content_of(fetch(TOY, KNOWN)) == before
    assert capfd.readouterr() == ("", "fetching 0.0 MB of hub:me/toy\n")
    hub.requests.clear()
    assert content_of(fetch(TOY, KNOWN)) == before
    assert capfd.readouterr() == ("", "")
    assert not [path for _, path in hub.requests if "resolve" in path or "large" in path]  # nothing came twice


def test_nothing_but_known_files_comes_down(hub: Hub, files: list[Path]) -> None:
    send(files)
    strange = {"training_state.pt": b"pickle", "model.py": b"import os", "a/config.yaml": b"a: 2", "LICENSE": b"MIT"}
    hub.models["me/toy"].commit("main", hub.files("me/toy") | strange)
    assert set(content_of(fetch(TOY, KNOWN))) == {path.name for path in files}
    fetched = {path.rpartition("/resolve/")[2].partition("/")[2] for _, path in hub.requests if "/resolve/" in path}
    assert fetched == {path.name for path in files}


def test_an_upload_replaces_the_one_before(hub: Hub, files: list[Path]) -> None:
    send(files)
    others = {"joint.model": b"of another upload", "LICENSE": b"MIT"}
    hub.models["me/toy"].commit("main", hub.files("me/toy") | others)
    files[1].write_bytes(b"a: 2\n")
    send(files)
    there = hub.files("me/toy")
    assert (there["config.yaml"], there["LICENSE"], "joint.model" in there) == (b"a: 2\n", b"MIT", False)
    assert content_of(fetch(TOY, KNOWN))["config.yaml"] == b"a: 2\n"


def test_a_branch(hub: Hub, files: list[Path]) -> None:
    send(files)
    before = dict(hub.files("me/toy"))
    files[1].write_bytes(b"a: 3\n")
    branch = Address("me/toy", "try/3")
    assert send(files, branch) == f"{hub.endpoint}/me/toy/tree/try%2F3"
    assert hub.files("me/toy") == before
    commit = hub.models["me/toy"].branches["try/3"]
    for revision in ("try/3", commit):
        assert content_of(fetch(Address("me/toy", revision), KNOWN))["config.yaml"] == b"a: 3\n"


def test_private_models(hub: Hub, files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    send(files, private=True)
    assert hub.models["me/toy"].private
    send(files, private=True)
    monkeypatch.delenv("HF_TOKEN")
    assert error_message(fetch, TOY, KNOWN) == (
        f"{hub.endpoint} has no model me/toy, or it is private (log in with `hf auth login`, or set HF_TOKEN): "
        "check the name"
    )
    assert error_message(send, files) == (
        "cannot write hub:me/toy without a token: log in with `hf auth login`, or set HF_TOKEN to one that may write"
    )


def test_a_private_model_is_not_made_of_a_public_one(hub: Hub, files: list[Path]) -> None:
    send(files)
    files[1].write_bytes(b"secret")
    assert "hub:me/toy exists and is public: leave --private out" in error_message(send, files, private=True)
    assert hub.files("me/toy")["config.yaml"] == b"a: 1\n"


def test_names_and_revisions_that_are_not_there(hub: Hub, files: list[Path]) -> None:
    send(files)
    assert error_message(fetch, Address("me/tyo"), KNOWN) == (
        f"{hub.endpoint} has no model me/tyo, or your token may not read it: check the name"
    )
    assert error_message(fetch, Address("me/toy", "v2"), KNOWN) == (
        "me/toy has no revision 'v2': give a branch, a tag or a commit, or leave it out"
    )
    assert "Repo id must" in error_message(fetch, Address("me/-toy-"), KNOWN)


def test_a_token_that_may_not(hub: Hub, files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    send(files)
    monkeypatch.setenv("HF_TOKEN", "hf_of_somebody_else")
    assert error_message(send, files) == (
        f"{hub.endpoint} does not let your token do this with hub:me/toy: it is not yours; "
        "log in with `hf auth login`, or set HF_TOKEN to another"
    )
    assert "Invalid credentials in Authorization header; log in" in error_message(send, files, Address("me/other"))


def test_a_model_with_an_agreement(hub: Hub) -> None:
    hub.models["me/toy"] = Repository(gated=True)
    assert error_message(fetch, TOY, KNOWN).startswith(
        f"hub:me/toy is gated: accept its terms at {hub.endpoint}/me/toy, then log in"
    )


def test_a_card_that_the_hub_refuses(hub: Hub, files: list[Path]) -> None:
    hub.invalid_card = '"language" must be a code of ISO 639'
    assert '"language" must be a code of ISO 639' in error_message(send, files)
    assert set(hub.files("me/toy")) == {".gitattributes"}


def test_without_network(
    hub: Hub, files: list[Path], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    send(files)
    folder = fetch(TOY, KNOWN)
    capfd.readouterr()
    hub.stop()
    assert fetch(TOY, KNOWN) == folder
    notice = capfd.readouterr().err
    assert notice.startswith(f"notice: cannot reach {hub.endpoint} (")
    assert notice.endswith("); hub:me/toy is what was downloaded last\n")
    message = error_message(fetch, Address("me/other"), KNOWN)
    assert message.startswith(f"cannot reach {hub.endpoint} (")
    assert f"), and the cache {constants.HF_HUB_CACHE} does not hold hub:me/other: check the network" in message
    assert error_message(send, files).startswith(f"cannot transfer hub:me/toy ({hub.endpoint}): ")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch(TOY, KNOWN) == folder
    assert capfd.readouterr().err == ""
    message = error_message(fetch, Address("me/other"), KNOWN)
    assert message.startswith("HF_HUB_OFFLINE keeps from asking the hub, and the cache ")
    assert message.endswith(" does not hold hub:me/other: unset it")


def test_a_download_that_was_cut(hub: Hub, files: list[Path]) -> None:
    send(files)
    folder = fetch(TOY, KNOWN)
    (folder / "weights.bin").unlink()
    hub.stop()
    assert "does not hold hub:me/toy" in error_message(fetch, TOY, KNOWN)


def test_a_hub_that_is_silent_or_broken(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.is_broken = True
    assert error_message(fetch, TOY, KNOWN).startswith(f"cannot reach {hub.endpoint} (")
    monkeypatch.setattr(client, "TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert "(timed out), and the cache" in error_message(fetch, TOY, KNOWN)


def test_a_disk_that_is_full(hub: Hub, files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    send(files)
    Path(constants.HF_HUB_CACHE).write_text("a file where the folder should be")
    assert "cannot transfer hub:me/toy" in error_message(fetch, TOY, KNOWN)
    error = OSError(28, "No space left on device", "/cache/x")
    assert failure_of(error, TOY) == (
        "cannot write /cache/x: No space left on device; free some space, or set HF_HUB_CACHE to another folder"
    )


def test_a_hub_without_xet() -> None:
    assert failure_of(RuntimeError("404 for /xet-write-token/main"), TOY).endswith("; try with HF_HUB_DISABLE_XET=1")


def test_an_interrupted_download_leaves_what_was_downloaded_before(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    model = hub.models.setdefault(TOY.name, Repository())
    names, weights = ("config.yaml", "model.safetensors"), bytes(2 * LARGE)
    model.commit("main", dict(zip(names, (b"old", weights), strict=True)))
    before = fetch(TOY, names)
    model.commit("main", dict(zip(names, (b"new", weights[::2] + b"new"), strict=True)) | {"more": b""})
    with monkeypatch.context() as broken:
        broken.setattr("tests.hub_stand_in.ROUTES", tuple(route for route in ROUTES if "/large/" not in route[1]))
        with pytest.raises(UserError, match="cannot transfer"):
            fetch(TOY, names)
    hub.is_broken = True
    assert fetch(TOY, names) == before
    hub.is_broken = False
    assert (fetch(TOY, names) / "config.yaml").read_bytes() == b"new"
    hub.is_broken = True
    assert (fetch(TOY, names) / "config.yaml").read_bytes() == b"new"
