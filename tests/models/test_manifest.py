"""No damage to a checkpoint's files goes unnoticed."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.errors import UserError
from nmt.models.manifest import MANIFEST, verify, write_manifest

FILES = {"weights": bytes(range(256)) * 3, "config.yaml": b"a: 1\n", "state": b"s" * 99}


def everything(name: str) -> bool:
    return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run") / "checkpoints" / "best"
    write(place)
    return place


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    write_manifest(folder)


def test_what_was_saved_is_accepted(folder: Path) -> None:
    verify(folder, everything)
    manifest = json.loads((folder / MANIFEST).read_text())
    assert {name: entry["bytes"] for name, entry in manifest["files"].items()} == {
        name: len(content) for name, content in FILES.items()
    }


@given(name=st.sampled_from(sorted(FILES)), data=st.data())
def test_any_flipped_bit_is_found_and_other_files_are_not_concerned(
    folder: Path, name: str, data: st.DataObject
) -> None:
    content = bytearray(FILES[name])
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    (folder / name).write_bytes(content)
    try:
        with pytest.raises(UserError, match=rf"{name} is not as it was saved, but damaged or edited; put back a copy"):
            verify(folder, everything)
        verify(folder, lambda other: other != name)
    finally:
        (folder / name).write_bytes(FILES[name])


def test_missing_files_and_manifests(tmp_path: Path) -> None:
    best, last = tmp_path / "checkpoints" / "best", tmp_path / "checkpoints" / "last"
    write(best)
    write(last)
    (best / "weights").unlink()
    with pytest.raises(UserError, match=rf"weights is missing; use {last}, put back a copy, or delete manifest.json"):
        verify(best, everything)
    (best / MANIFEST).unlink()
    verify(best, everything)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": 1, "files": {"weights": 3}}', "[" * 99_999, '{"a": "', '{"format": 1e999}']
)
def test_a_damaged_manifest_is_named(tmp_path: Path, content: str) -> None:
    write(tmp_path)
    (tmp_path / MANIFEST).write_text(content)
    with pytest.raises(UserError, match=r"manifest\.json is damaged"):
        verify(tmp_path, everything)


def test_a_later_format_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps(manifest | {"format": 2}))
    with pytest.raises(UserError, match="has format 2, and this version of nmt reads 1"):
        verify(tmp_path, everything)
