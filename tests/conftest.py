"""Every test runs with the shapes and types of nmt's signatures checked."""

import importlib
import io
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import hypothesis
import jaxtyping
import pytest

from tests.browser import Browser, started
from tests.processes import Zygote
from tests.runs import ROOT, TINY, Completed, wait_for

# Tests share the cores with each other, so a thread that waits for another must not spin. Read when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Before any test imports nmt; the grammar has no tensors, and is ten times as slow with every call checked.
FOLDERS = {"nmt.": ROOT / "nmt", "nmt.data.": ROOT / "nmt" / "data"}
CHECKED = {each.name for prefix, folder in FOLDERS.items() for each in iter_modules([str(folder)], prefix)}
CHECKED -= {"nmt.data", "nmt.data.grammar"}
# The numeric tower: an int will do for a float, as type checkers have it.
jaxtyping.install_import_hook(sorted(CHECKED), "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")

# The same examples every time, and no time limit on machines that are busy.
hypothesis.settings.register_profile("nmt", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("nmt")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """The same random numbers in every test, whatever ran before it."""
    import random

    import numpy as np
    import torch

    random.seed(0)
    np.random.seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture(scope="session")
def command() -> Callable[..., Completed]:
    """Run `python -m nmt.<module> <arguments>` as a user does, in a folder, and return what it printed."""

    def run(
        module: str, *arguments: str, cwd: Path, stdin: bytes = b"", timeout: float = 300, **variables: str
    ) -> Completed:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
        line = [sys.executable, "-m", f"nmt.{module}", *arguments]
        done = subprocess.run(line, cwd=cwd, env=environment, input=stdin, capture_output=True, timeout=timeout)
        # Decoded here, because text mode would take "\r" for a newline.
        return Completed(line, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """Starts commands in processes that need not import nmt first."""
    with Zygote(tmp_path_factory.mktemp("printed")) as zygote:
        yield zygote


@pytest.fixture(scope="session")
def together(zygote: Zygote) -> Callable[..., list[Completed]]:
    """Call `main` of a module in processes that train together, with the variables that `torchrun` sets."""

    def run(module: str, *arguments: str, cwd: Path, timeout: float = 120, number: int = 2) -> list[Completed]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        common = {"WORLD_SIZE": str(number), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        places = [{**common, "RANK": rank, "LOCAL_RANK": rank} for rank in map(str, range(number))]
        processes = [zygote.start(module, *arguments, cwd=cwd, environment=place) for place in places]
        return [Completed([module, *arguments], *each) for each in zygote.wait_for_all(processes, timeout)]

    return run


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., Completed]:
    """Do what `command` does in this process, which spares the seconds in which another would start."""

    def run(module: str, *arguments: str, cwd: Path = tmp_path, stdin: bytes = b"") -> Completed:
        line = [f"nmt.{module}", *arguments]
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", line)
        status = 0
        with tempfile.TemporaryFile("w+b") as file:
            file.write(stdin)
            file.seek(0)
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file, encoding="ascii"))
            try:
                importlib.import_module(f"nmt.{module}").main()
            except SystemExit as exit:
                status = exit.code if isinstance(exit.code, int) else 1
        captured = capfdbinary.readouterr()
        return Completed(line, status, captured.out.decode(), captured.err.decode())

    return run


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A temporary folder that all processes of pytest-xdist share."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def tiny_options(shared_folder: Path) -> list[str]:
    """Overrides with which `nmt.train` takes seconds."""
    return [*TINY, f"data.cache_dir={shared_folder / 'tiny-cache'}"]


@pytest.fixture(scope="session")
def tiny_run(command: Callable[..., Completed], shared_folder: Path, tiny_options: list[str]) -> Path:
    """A run trained by the real command, by the first process that asks for it. Look at it, but copy it to write."""
    place, run = shared_folder / "tiny", shared_folder / "tiny" / "run"
    try:
        place.mkdir()
    except FileExistsError:
        wait_for(lambda: run.exists() or (place / "failed").exists(), seconds=300)
        assert run.exists(), "another process could not train it"
        return run
    steps = ("trainer.max_steps=100", "trainer.validate_every_steps=50")
    done = command("train", "run_dir=unfinished", *tiny_options, *steps, cwd=place)
    (place / "output.txt").write_text(done.stdout, encoding="utf-8")
    if done.returncode:
        (place / "failed").touch()
    assert done.returncode == 0, done.stderr
    return (place / "unfinished").rename(run)


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    """A copy of the tiny run, which a test may change."""
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


@pytest.fixture
def best(run: Path) -> Path:
    """The best checkpoint of that copy."""
    return run / "checkpoints" / "best"


@pytest.fixture(scope="module")
def translator(tiny_run: Path) -> Any:
    """A translator that loaded the tiny run."""
    from nmt.translator import Translator

    return Translator.load(tiny_run, device="cpu")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser that runs, in which tests open pages one after the other."""
    with started() as browser:
        yield browser


@pytest.fixture
def own_datasets_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `datasets` keep its files in a folder of the test."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")


@pytest.fixture
def crossing(tmp_path: Path) -> Callable[[Sequence[str]], Any]:
    """Learn from a few lines tokenizers whose pieces cross words, so that pieces and spaces count differently."""
    import sentencepiece

    from nmt.text.tokenizer import Tokenizer, Tokenizers

    def learn(lines: Sequence[str]) -> Tokenizers:
        (tmp_path / "text").write_text("\n".join([*lines] * 20), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=str(tmp_path / "text"),
            model_prefix=str(tmp_path / "whole"),
            model_type="bpe",
            vocab_size=120,
            hard_vocab_limit=False,
            split_by_whitespace=False,
            minloglevel=2,
        )
        whole = Tokenizer.load(tmp_path / "whole.model")
        return Tokenizers(whole, whole)

    return learn


@pytest.fixture
def hub(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A hub on this machine (`tests.hub_stand_in.Hub`), to which this process and its commands are logged in."""
    from huggingface_hub import constants

    from tests.hub_stand_in import TOKEN, running_hub

    home = tmp_path_factory.mktemp("hf")
    with running_hub() as hub:
        # The client reads the environment when it is imported: the first are for it, the others for commands.
        values = {"ENDPOINT": hub.endpoint, "HF_HUB_CACHE": str(home / "hub"), "HF_TOKEN_PATH": str(home / "token")}
        values["HUGGINGFACE_CO_URL_TEMPLATE"] = f"{hub.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        for name, value in values.items():
            monkeypatch.setattr(constants, name, value)
        for name in ("HF_HUB_DISABLE_XET", "HF_HUB_OFFLINE"):
            monkeypatch.setattr(constants, name, name == "HF_HUB_DISABLE_XET")  # which the stand-in does not speak
            monkeypatch.setenv(name, str(int(name == "HF_HUB_DISABLE_XET")))
        for name, value in {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home), "HF_TOKEN": TOKEN}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        yield hub
