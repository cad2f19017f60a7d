"""`python -m nmt.export`: the folder it writes, and the example in it, which translates as nmt.translate does."""

import ast
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.models.checkpoint import Checkpoint, load_checkpoint
from nmt.translator import Translator

LINES = [
    "The small cat sleeps.",
    "",
    "He did not eat them because the old woman saw me.",
    "  ",
    "naïve 猫?",
    "She sleeps.",
]
WITHOUT = """
import runpy, sys
sys.modules.update(dict.fromkeys(("nmt", "torch")))  # to import them is an error
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


@pytest.fixture(scope="module")
def run(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(tiny_run, tmp_path_factory.mktemp("export") / "run"))


@pytest.fixture(scope="module")
def folder(run: Path, command: Callable[..., Any]) -> Path:
    done = command("export", "run", "--to", "onnx", "--int8", cwd=run.parent)
    assert (done.returncode, done.stderr) == (0, "")
    first, second, last = done.stdout.splitlines()
    assert first.startswith("fp32: encoder.onnx 0.")
    assert second.startswith("int8: encoder.int8.onnx 0.")
    assert last == f"written to {run / 'onnx'}: see {run / 'onnx' / 'translate.py'}"
    return run / "onnx"


@pytest.fixture(scope="module")
def checkpoint(run: Path) -> Checkpoint:
    return load_checkpoint(run)


def test_the_files(run: Path, folder: Path, checkpoint: Checkpoint) -> None:
    model = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    graphs = [name for graphs in model["graphs"].values() for name in graphs.values()]
    assert graphs == ["encoder.onnx", "step.onnx", "encoder.int8.onnx", "step.int8.onnx"]
    assert {path.name for path in folder.iterdir()} == {*graphs, "joint.model", "model.json", "translate.py"}
    fp32, int8 = (model["largest_difference"][name]["log_probs"] for name in ("fp32", "int8"))
    assert 0 < fp32 < 1e-5 < int8 < 1
    assert model["subwords"] == ["joint.model"] * 2
    assert (folder / "joint.model").read_bytes() == (checkpoint.folder / "joint.model").read_bytes()
    assert model["special_ids"] == {"pad": 0, "unk": 1, "bos": 2, "eos": 3}
    assert model["search"] == {name: getattr(checkpoint.config.search, name) for name in model["search"]}
    assert (model["source_language"], model["target_language"]) == ("en", "fr")
    assert model["text"] == [{"segmentation": "sentencepiece", "normalization": "nmt_nfkc", "case": "kept"}] * 2
    assert model["step"]["inputs"]["layer_0"] == "tensor(float) [batch, beam, 64]"
    assert model["model"]["updates"] == checkpoint.step
    sizes = [(folder / name).stat().st_size for name in graphs]
    assert sum(sizes[2:]) < 0.5 * sum(sizes[:2])
    assert (folder / "step.onnx").stat().st_mode == (run / "config.yaml").stat().st_mode


@pytest.mark.parametrize("options", [[], ["--beam-size", "1"], ["--int8"]])
def test_the_example_needs_no_pytorch(run: Path, folder: Path, options: list[str]) -> None:
    stdin = "".join(f"{line}\r\n" for line in LINES).encode()
    line = [sys.executable, "-c", WITHOUT, str(folder / "translate.py"), *options]
    done = subprocess.run(line, cwd="/", input=stdin, capture_output=True, check=False)
    assert done.returncode == 0
    assert all(each.startswith(b"notice: ") for each in done.stderr.splitlines()), done.stderr  # of a little model
    translated = done.stdout.decode().split("\n")
    assert len(translated) == len(LINES) + 1
    assert [bool(text) for text in translated] == [bool(line.strip()) for line in [*LINES, ""]]
    if options != ["--int8"]:
        translator = Translator.load(run, "cpu", beam_size=1 if options else None)
        assert translated[:-1] == [each.text for each in translator.translate(LINES)]


@pytest.mark.parametrize(
    ("options", "stdin", "message"),
    [
        (["--beam-size", "-1"], b"a\n", b"translate.py: error: --beam-size must be at least 0"),
        ([], b"a\nb\xff\n", b"translate.py: error: line 2 is not UTF-8: "),
    ],
)
def test_the_example_tells_what_is_wrong(folder: Path, options: list[str], stdin: bytes, message: bytes) -> None:
    line = [sys.executable, str(folder / "translate.py"), *options]
    done = subprocess.run(line, input=stdin, capture_output=True, check=False)
    assert (done.returncode, message in done.stderr, b"Traceback" in done.stderr) == (2, True, False)


def test_the_example_tells_which_lines_it_has_not_translated_as_they_are(folder: Path) -> None:
    line = [sys.executable, str(folder / "translate.py"), "--beam-size", "1"]
    stdin = f"{LINES[0]}\n{'He sleeps. ' * 200}\n".encode()
    done = subprocess.run(line, input=stdin, capture_output=True, check=True)
    (notice, *_) = done.stderr.decode().splitlines()
    assert notice.startswith("notice: the line that begins with 'He sleeps. He sleeps. "), notice
    assert "is far longer than what the model was trained on" in notice
    assert len(done.stdout.decode().splitlines()) == 2


def test_the_example_ends_where_its_reader_does(folder: Path) -> None:
    line = [sys.executable, str(folder / "translate.py")]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        process.stdin.write(b"He sleeps.\n")
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == -signal.SIGPIPE


def test_the_example_is_short_and_imports_little(folder: Path) -> None:
    text = (folder / "translate.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in nodes}
    assert names - sys.stdlib_module_names == {"numpy", "onnxruntime", "sentencepiece"}
