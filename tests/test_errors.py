"""Mistakes of a user: exit status 2, one line on standard error, nothing written."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.config.file import save_config
from nmt.config.schema import ModelConfig, TrainConfig
from nmt.errors import UserError, write_errors

TEXT = ("data=text", "run_dir=run", "trainer.max_steps=1")
FILES = {
    "good.en": b"A cat sleeps.\nTwo dogs play.\nA man rides a horse.\n",
    "good.fr": b"Un chat dort.\nDeux chiens jouent.\nUn homme monte un cheval.\n",
    "short.fr": b"Un chat dort.\nUn homme monte un cheval.\n",
    "gap.en": b"A cat sleeps.\n\nA man rides a horse.\n",
    "latin.fr": b"Un chat dort.\nUn chien \xe9coute.\nUn homme monte un cheval.\n",
    "empty": b"",
    "blank": b"\n \n\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    return tmp_path


def text(split: str, source: str, target: str) -> tuple[str, str]:
    return f"data.{split}.source={source}", f"data.{split}.target={target}"


def written(folder: Path) -> set[str]:
    """Everything but the files given and the cache."""
    names = {path.name for path in folder.iterdir()} - {*FILES, "folder", "data"}
    return names | {str(path) for path in (folder / "folder").iterdir()}


GOOD_TRAIN, GOOD_VALIDATION = text("train", "good.en", "good.fr"), text("validation", "good.en", "good.fr")
MISTAKES = {
    "missing file": (
        [*text("train", "nowhere.en", "good.fr"), *GOOD_VALIDATION],
        ["data.train.source: no such file: nowhere.en"],
    ),
    "not UTF-8": (
        [*text("train", "good.en", "latin.fr"), *GOOD_VALIDATION],
        ["latin.fr is not UTF-8: line 2, byte 10 of the line", "is 0xe9"],
    ),
    "sides of different line counts": (
        [*text("train", "good.en", "short.fr"), *GOOD_VALIDATION],
        ["good.en has 3 lines but short.fr has 2: ", "line 3 of good.en is the first without a counterpart"],
    ),
    "empty corpus": (
        [*text("train", "empty", "empty"), *GOOD_VALIDATION],
        ["the train split is empty: empty and empty hold no lines"],
    ),
    "missing validation file": (
        [*GOOD_TRAIN, *text("validation", "good.en", "nowhere.fr")],
        ["data.validation.target: no such file: nowhere.fr"],
    ),
    "missing test file": (
        [*GOOD_TRAIN, *GOOD_VALIDATION, *text("test", "nowhere.en", "good.fr")],
        ["data.test.source: no such file: nowhere.en"],
    ),
    "sides that fall out of step": (
        [*text("train", "gap.en", "short.fr"), *GOOD_VALIDATION],
        ["gap.en has 3 lines but short.fr has 2: ", "they seem to fall out of step at line 2"],
    ),
    "nothing but empty lines": (
        [*text("train", "blank", "blank"), *GOOD_VALIDATION],
        ["cleaning leaves nothing of the corpus", "3 with an empty side"],
    ),
    "no validation": ([*GOOD_TRAIN], ["no validation text: set data.validation.source"]),
}
OPTIONS = {
    "unknown key": (
        ["train", "model.hiden_size=3"],
        "unknown key 'model.hiden_size'; did you mean 'model.hidden_size'?",
    ),
    "wrong choice": (["train", "run_dir=run", "model.cell=gruu"], "choose one of gru, lstm; did you mean 'gru'?"),
    "no run folder": (["train", "run_dir=''"], "run_dir is empty: give the folder of the run, or leave it out"),
    "wrong device": (["translate", "--device", "tpu"], "invalid choice: 'tpu' (choose from"),
    "unknown option": (["translate", "--beem", "3"], "unrecognized arguments: --beem"),
    "not a number": (["translate", "--beam-size", "many"], "argument --beam-size: 'many' is not a number (int)"),
    "too small": (["translate", "--beam-size", "0"], "argument --beam-size: must be at least 1, not 0; see --help"),
    "no input file": (["translate", "--input", "nowhere"], "cannot read nowhere: No such file or directory"),
    "two inputs": (["translate", "text", "--input", "good.en"], "both TEXT and --input are given: choose one"),
    "an option of no command": (["train", "run_dir=run", "--hidden-size", "256"], "write model.hidden_size=256"),
    "a setting of another command": (["translate", "beam_size=3", "a"], "write --beam-size"),
    "no checkpoint to score": (["evaluate", "checkpoint=folder"], "no checkpoint at folder: neither checkpoints/best"),
    "no checkpoint": (
        ["translate", "--checkpoint", "folder", "a"],
        "no checkpoint at folder: neither checkpoints/best",
    ),
}


def check(done: Any, folder: Path, *messages: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert all(message in done.stderr for message in messages), done.stderr
    assert done.stdout == ""
    assert written(folder) == set()


def test_a_missing_file_is_told_before_all_else(call: Callable[..., Any], folder: Path) -> None:
    """Here there is neither validation text, nor an end of training, nor such a decoder."""
    done = call("train", "data=text", "run_dir=run", *text("train", "nowhere.en", "good.fr"), "model.decoder=none")
    check(done, folder, "data.train.source: no such file: nowhere.en (looked for in ")


@pytest.mark.parametrize(("options", "messages"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_any_split_is_told_before_any_work(
    call: Callable[..., Any], folder: Path, options: list[str], messages: list[str]
) -> None:
    check(call("train", *TEXT, *options), folder, *messages)


@pytest.mark.parametrize(("arguments", "message"), OPTIONS.values(), ids=OPTIONS)
def test_options_that_are_wrong(call: Callable[..., Any], folder: Path, arguments: list[str], message: str) -> None:
    check(call(*arguments), folder, message)


def test_a_hub_out_of_reach(command: Callable[..., Any], folder: Path) -> None:
    hub = {"HF_HOME": str(folder / "data" / "hub"), "HF_ENDPOINT": "https://huggingface.co", "HF_HUB_OFFLINE": "0"}
    proxy = {"HTTPS_PROXY": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "NO_PROXY": "", "no_proxy": ""}
    done = command("train", "data=multi30k", "run_dir=run", "trainer.max_steps=1", cwd=folder, **hub, **proxy)
    check(done, folder, "cannot reach https://huggingface.co for data set bentrevett/multi30k", "use data=text")


def test_a_damaged_checkpoint(call: Callable[..., Any], folder: Path) -> None:
    save_config(TrainConfig(model=ModelConfig(hidden_size=8)), folder / "folder" / "config.yaml")
    (folder / "folder" / "model.safetensors").write_bytes(b"not weights")
    before = written(folder)
    done = call("translate", "--checkpoint", "folder", "a")
    assert done.returncode == 2
    assert done.stderr == "error: no tokenizer in folder: it needs joint.model, or source.model and target.model\n"
    assert written(folder) == before


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (FileExistsError(errno.EEXIST, "File exists"), "cannot write it: File exists; choose another folder"),
        (PermissionError(errno.EACCES, "Permission denied"), "Permission denied; choose another folder"),
        (OSError(errno.ENOSPC, "No space left on device"), "device; free some space, or choose another folder"),
    ],
)
def test_the_advice_fits_the_failure(error: OSError, message: str) -> None:
    with pytest.raises(UserError, match=message), write_errors("it"):
        raise error
    with pytest.raises(UserError, match=r"; sleep$"), write_errors("it", "sleep"):
        raise error
