"""Files that cannot be written to their end: the system refuses them above a size, as it does on a full disk.

One line and status 2, no half-written files, and what was there before is as it was.
"""

import contextlib
import hashlib
import io
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nmt.cli import user_errors
from nmt.errors import UserError, is_out_of_memory, write_errors
from nmt.evaluation.records import keep_records
from nmt.models.checkpoint import find_checkpoint, load_checkpoint, resolve_device, save_checkpoint
from nmt.training.lock import locked
from nmt.translate import replace_together
from nmt.translator import Translator
from tests.runs import ROOT, Completed

LINES = "He sleeps in the garden.\n" * 400


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file of this process grow above a number of bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def contents(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def is_one_error(told: str) -> bool:
    last = told.splitlines()[-1]
    return last.startswith("error: cannot write ") and told.count("error: ") == 1 and "Traceback" not in told


@pytest.fixture
def limited(call: Callable[..., Completed]) -> Callable[..., Completed]:
    """Do what `call` does while no file may be larger than `size`; what is printed goes to no file."""

    def run(size: int, *arguments: str) -> Completed:
        out, err = io.StringIO(), io.StringIO()
        with largest_file(size), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            done = call(*arguments)
        return Completed(done.args, done.returncode, out.getvalue(), err.getvalue())

    return run


# The files of a checkpoint: vocabulary 250 kB, weights 490 kB, the state of training 1 MB.
@pytest.mark.parametrize("size", [0, 20_000, 300_000, 1_005_000])
def test_training_keeps_what_it_has_saved(
    run: Path, tiny_options: list[str], call: Callable[..., Any], limited: Callable[..., Any], size: int
) -> None:
    before = contents(run / "checkpoints" / "last")
    options = ["run_dir=run", *tiny_options, "trainer.max_steps=102", "trainer.num_samples=0"]
    done = limited(size, "train", *options)
    assert done.returncode == 2, done.stderr
    assert is_one_error(done.stderr), done.stderr
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"best", "last"}
    assert contents(run / "checkpoints" / "last") == before
    assert load_checkpoint(run, resolve_device("cpu")).step >= 50
    done = call("train", *options, "trainer.evaluate=false")
    assert done.returncode == 0, done.stderr
    assert "training ends at update 102" in done.stderr


def test_training_needs_neither_tensorboard_nor_a_log(
    run: Path, tiny_options: list[str], limited: Callable[..., Any]
) -> None:
    """Both are as large as a file may be; the others of the run are smaller."""
    size = 3_000_000
    (run / "train.log").write_bytes(b"x" * size)
    shutil.rmtree(run / "tensorboard")
    (run / "tensorboard").touch()
    done = limited(size, "train", "run_dir=run", *tiny_options, "trainer.max_steps=102", "trainer.evaluate=false")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the run goes on") == 2
    assert "the files for TensorBoard cannot be written" in done.stderr
    assert "train.log cannot be written (File too large): the run goes on" in done.stderr
    assert "training ends at update 102" in done.stderr
    assert (run / "train.log").stat().st_size == size


def test_curves_that_can_no_longer_be_written_are_given_up(
    tmp_path: Path, tiny_options: list[str], limited: Callable[..., Any]
) -> None:
    """TensorBoard's file is written by a thread of its own, whose error must not be printed as a traceback."""
    options = ["model.embedding_size=8", "model.hidden_size=8", "trainer.num_samples=0", "trainer.log_every=1"]
    options += ["tokenizer.kind=whitespace", "trainer.max_steps=150", "trainer.evaluate=false"]
    done = limited(30_000, "train", "run_dir=new", *tiny_options, *options, "trainer.validate_every_steps=150")
    assert "the files for TensorBoard cannot be written (File too large)" in done.stderr
    assert "Traceback" not in done.stderr
    written = sum(path.stat().st_size for path in (tmp_path / "new" / "tensorboard").iterdir())
    assert written <= 30_000


@pytest.mark.parametrize("size", [0, 1_000, 5_000, 20_000])
def test_an_evaluation_that_cannot_be_written_leaves_the_one_before(
    run: Path, limited: Callable[..., Any], size: int
) -> None:
    before = contents(run)
    done = limited(size, "evaluate", "checkpoint=run", "num_heatmaps=2", "threads=1")
    assert done.returncode == 2
    assert is_one_error(done.stderr), done.stderr
    assert contents(run) == before
    assert {path.name for path in (run / "evaluation").iterdir()} >= {"test", "test_long"}


def test_translations_that_cannot_be_written_leave_the_file_before(
    tiny_run: Path, tmp_path: Path, limited: Callable[..., Any]
) -> None:
    (tmp_path / "in").write_text(LINES)
    (tmp_path / "out").write_text("before")
    options = ["--checkpoint", str(tiny_run), "--device", "cpu", "--input", "in", "--output", "out"]
    done = limited(1_000, "translate", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: cannot write out: File too large; free some space, or choose another folder\n"
    assert (tmp_path / "out").read_text() == "before"
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out"}


@pytest.mark.parametrize("missing", [10, 20_000])
def test_a_datastore_that_cannot_be_written_leaves_the_one_before(
    run: Path, call: Callable[..., Completed], limited: Callable[..., Completed], missing: int
) -> None:
    """Also where only the last bytes of its index do not fit."""
    assert call("datastore", "run").returncode == 0
    before = contents(run)
    done = limited((run / "datastore" / "index.faiss").stat().st_size - missing, "datastore", "run")
    assert done.returncode == 2
    assert is_one_error(done.stderr), done.stderr
    assert "File too large" in done.stderr
    assert contents(run) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device of Linux that is always full")
@pytest.mark.parametrize("stderr", [subprocess.PIPE, subprocess.STDOUT], ids=["output", "output and messages"])
@pytest.mark.parametrize("module", ["translate", "evaluate", "train --help"])
def test_standard_output_may_be_full(run: Path, module: str, stderr: int) -> None:
    options = {
        "translate": ["translate", "--checkpoint", "run", "He sleeps."],
        "evaluate": ["evaluate", "checkpoint=run", "num_heatmaps=0", "threads=1"],
        "train --help": ["train", "--help"],
    }
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    name, *others = options[module]
    with Path("/dev/full").open("w") as full:
        line = [sys.executable, "-m", f"nmt.{name}", *others]
        done = subprocess.run(line, stdout=full, stderr=stderr, text=True, cwd=run.parent, env=environment)
    assert done.returncode == 2
    if stderr == subprocess.PIPE:
        assert is_one_error(done.stderr), done.stderr
        assert "No space left on device" in done.stderr


def test_a_checkpoint_that_cannot_be_written_leaves_nothing(tiny_run: Path, tmp_path: Path) -> None:
    found = load_checkpoint(tiny_run, resolve_device("cpu"))
    with largest_file(300_000), pytest.raises(UserError, match=r"cannot write .*new: File too large"):
        save_checkpoint(tmp_path / "new", found.model, found.config, found.tokenizers, step=1)
    assert not list(tmp_path.iterdir())
    save_checkpoint(tmp_path / "new", found.model, found.config, found.tokenizers, step=1)
    assert find_checkpoint(tmp_path / "new") == tmp_path / "new"
    assert Translator.load(tmp_path / "new", "cpu").step == 1


def test_a_run_that_cannot_begin_names_its_folder_and_leaves_nothing(tmp_path: Path) -> None:
    refused = pytest.raises(UserError, match=r"cannot write .*run/\.lock: File too large; free some space")
    with refused, largest_file(0), locked(tmp_path / "run"):
        pass
    assert not list((tmp_path / "run").iterdir())


def test_records_that_cannot_be_rewritten_are_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"event": "train", "step": {step}}}\n' for step in (1, 2)))
    before = contents(tmp_path)
    with pytest.raises(UserError, match=r"cannot write .*metrics\.jsonl: File too large"), largest_file(9):
        keep_records(path, lambda record: record["step"] == 1)
    assert contents(tmp_path) == before
    keep_records(path, lambda record: record["step"] == 1)
    assert path.read_text().count("\n") == 1


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes. Error code 12"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_memory_that_has_run_out_is_one_line(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert is_out_of_memory(error)
    with pytest.raises(SystemExit) as ended, user_errors():
        raise error
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: memory does not suffice: lower batch.size")


@pytest.mark.parametrize("error", [RuntimeError("shapes"), FileNotFoundError(2, "No such file"), ValueError("x")])
def test_other_errors_keep_their_traceback(error: Exception) -> None:
    assert not is_out_of_memory(error)
    with pytest.raises(type(error)), user_errors():
        raise error


def test_writing_names_what_is_written() -> None:
    with (
        pytest.raises(UserError, match=r"^cannot write the log: No space left on device; sweep$"),
        write_errors("the log", "sweep"),
    ):
        raise OSError(28, "No space left on device")
    with pytest.raises(BrokenPipeError), write_errors("the log"):
        raise BrokenPipeError
    with pytest.raises(ValueError, match=r"^x$"), write_errors("the log"):
        raise ValueError("x")


def test_files_are_replaced_all_or_none(tmp_path: Path) -> None:
    """The last one fails when it is closed."""
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_text("old")
    before = contents(tmp_path)
    fails = pytest.raises(OSError, match="File too large")
    with fails, largest_file(4), replace_together(*paths) as files:
        for file, text in zip(files, ("new", "new", "newer"), strict=True):
            file.write(text)
    assert contents(tmp_path) == before
    with replace_together(*paths) as files:
        for file in files:
            file.write("new")
    assert [path.read_text() for path in sorted(tmp_path.iterdir())] == ["new"] * 3
