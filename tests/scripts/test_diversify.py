"""More training text from one's own models: the script, with tiny runs of both directions."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.config.schema import DataConfig, SplitConfig
from nmt.data.corpus import load_split
from nmt.models.checkpoint import load_checkpoint
from nmt.translator import Translator
from tests.composing import compose
from tests.runs import ROOT, TINY
from tests.scripts.running import SCRIPTS

CHUNK = 64
# The script, in small chunks, that kills itself like an operating system does.
KILLED = f"""
import os, runpy, signal, sys
from diversification import translating
translating.CHUNK, chunks, add = {CHUNK}, [], translating.Progress.add
def count(*arguments):
    chunks.append(arguments)
    os.kill(os.getpid(), signal.SIGKILL) if len(chunks) == 7 else add(*arguments)
translating.Progress.add = count
sys.argv[0] = "diversify.py"
runpy.run_path({str(SCRIPTS / "diversify.py")!r}, run_name="__main__")
"""


def lines(path: Path) -> list[str]:
    content = path.read_bytes().decode()
    assert content.endswith("\n")
    return content.split("\n")[:-1]


@pytest.fixture(scope="session")
def text(tiny_run: Path, shared_folder: Path) -> tuple[Path, Path]:
    """The training text of the tiny run, as files."""
    folder = shared_folder / f"text-{os.getpid()}"
    folder.mkdir()
    corpus = load_split(load_checkpoint(tiny_run).config.data, "train")
    for side, name in (("source", "train.en"), ("target", "train.fr")):
        (folder / name).write_text("".join(f"{line}\n" for line in corpus[side]), encoding="utf-8")
    return folder / "train.en", folder / "train.fr"


@pytest.fixture(scope="session")
def backward_run(text: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from French to English, too short to translate well."""
    from nmt.training.run import train

    folder = tmp_path_factory.mktemp("backward")
    sides = {"source": text[1], "target": text[0]}
    files = [f"data.{split}.{side}={path}" for split in ("train", "validation") for side, path in sides.items()]
    config = compose(
        "train", *TINY, "data=text", *files, "data.source_language=fr", "data.target_language=en",
        f"data.cache_dir={folder / 'cache'}", "data.num_workers=1", "trainer.max_steps=8", "trainer.evaluate=false",
        "trainer.validate_every_steps=8", "trainer.num_samples=0", f"run_dir={folder / 'run'}",
    )  # fmt: skip
    Path(config.run_dir).mkdir()
    return train(config)


@pytest.fixture
def diversify(call: Callable[..., int], script: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.setattr(script("diversification.translating"), "CHUNK", CHUNK)

    def run(*arguments: Any) -> int:
        return call("diversify", "--device", "cpu", "--threads", "1", *map(str, arguments))

    return run


def check_origins(whole: Path, expected: dict[str, list[tuple[str, str]]]) -> int:
    """Check each pair against the line that train.tsv names, and that none is missing or twice; return their number."""
    pairs = list(zip(lines(whole / "train.en"), lines(whole / "train.fr"), strict=True))
    origins = [line.split("\t") for line in lines(whole / "train.tsv")]
    assert [expected[name][int(number) - 1] for name, number in origins] == pairs
    assert {name for name, _ in origins} == set(expected)
    assert set(pairs) == {pair for each in expected.values() for pair in each if all(pair)}
    synthetic = [pair for pair, (name, _) in zip(pairs, origins, strict=True) if name != "original"]
    assert len(set(synthetic)) == len(synthetic)
    assert not set(synthetic) & set(expected["original"])
    return len(pairs)


def contents(folder: Path) -> dict[Path, bytes]:
    """Return the files of a folder, by their paths in it."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")}


def num_training_pairs(folder: Path, cache: Path) -> int:
    split = SplitConfig(source=str(folder / "train.en"), target=str(folder / "train.fr"))
    return len(load_split(DataConfig(kind="text", train=split, cache_dir=str(cache)), "train"))


def test_both_directions_killed_and_resumed(
    tiny_run: Path,
    backward_run: Path,
    text: tuple[Path, Path],
    tmp_path: Path,
    diversify: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    runs = ("--forward", str(tiny_run), "--backward", str(backward_run), "--beam-size", "2", "--device", "cpu")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{SCRIPTS}", "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-c", KILLED, *runs, "--threads", "1", "--output", "killed"]
    killed = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    folder = tmp_path / "killed" / "parts"
    (unfinished,) = folder.glob("*.unfinished")
    assert (unfinished.name[:8], len(lines(unfinished))) == ("backward", 2 * CHUNK)
    with unfinished.open("a", encoding="utf-8") as file:  # as if killed while writing
        file.write("a line\nand a ha")

    translated: list[int] = []
    found = Translator.translate_n_best
    monkeypatch.setattr(
        Translator, "translate_n_best", lambda self, lines, n: (translated.append(len(lines)), found(self, lines, n))[1]
    )
    assert diversify(*runs, "--output", "killed") == 0
    assert translated == [CHUNK, CHUNK, 300 - 4 * CHUNK]
    assert "300 of 300" in capfd.readouterr().err
    assert diversify(*runs, "--output", "whole") == 0
    written = {kind: contents(tmp_path / kind) for kind in ("killed", "whole")}
    summaries = [json.loads(each.pop(Path("summary.json"))) for each in written.values()]
    assert [each.pop("files") for each in summaries] == [[f"{kind}/train.en", f"{kind}/train.fr"] for kind in written]
    assert summaries[0] == summaries[1]
    assert written["killed"] == written["whole"]
    assert len(written["whole"]) == 3 + 2 * 2

    # What was written is what the runs say, each line where train.tsv says.
    sources, targets = map(lines, text)
    forward = [each.line for each in Translator.load(tiny_run, "cpu", beam_size=2).translate(sources)]
    backward = [each.line for each in Translator.load(backward_run, "cpu", beam_size=2).translate(targets)]
    expected = {
        "original": list(zip(sources, targets, strict=True)),
        "forward-1": list(zip(sources, forward, strict=True)),
        "backward-1": list(zip(backward, targets, strict=True)),
    }
    num_pairs = check_origins(tmp_path / "whole", expected)
    assert summaries[0]["pairs"] == num_pairs == sum(each["written"] for each in summaries[0]["origins"])

    # Other shares need no new translations, and the text can be trained on.
    translated.clear()
    assert diversify(*runs, "--output", "whole", "--original-share", "2", "--forward-share", "0.5") == 0
    assert not translated
    names = [line.split("\t")[0] for line in lines(tmp_path / "whole/train.tsv")]
    assert num_training_pairs(tmp_path / "whole", tmp_path / "cache") == len(names)
    original, forward_part, _ = json.loads((tmp_path / "whole/summary.json").read_text())["origins"]
    assert names.count("original") == original["written"] == 600
    assert forward_part["share"] == 150
    assert names.count("forward-1") == 150 - forward_part["duplicates"] - forward_part["empty"] > 50


def test_a_backward_run_alone_tells_the_languages(
    backward_run: Path, text: tuple[Path, Path], tmp_path: Path, diversify: Callable[..., int]
) -> None:
    """Its source is the target of what is written."""
    assert diversify("--backward", backward_run, "--beam-size", 1, "--output", "out") == 0
    for written, side in zip(("train.en", "train.fr"), text, strict=True):
        assert lines(tmp_path / "out" / written)[:300] == lines(side)
    assert lines(tmp_path / "out/train.fr")[300:] == lines(text[1])
    assert lines(tmp_path / "out/train.tsv")[300] == "backward-1\t1"


def test_distillation_from_an_ensemble(
    tiny_run: Path, text: tuple[Path, Path], tmp_path: Path, diversify: Callable[..., int]
) -> None:
    last, sides = tiny_run / "checkpoints" / "last", [lines(path)[:80] for path in text]
    for name, side in zip(("some.en", "some.fr"), sides, strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    options = ("--ensemble", "--original-share", 0, "--source", "some.en", "--target", "some.fr")
    assert diversify("--forward", tiny_run, last, *options, "--output", "distilled") == 0
    together = Translator.load(tiny_run, "cpu", ensemble=[last]).translate(sides[0])
    said = {(each.source, each.line) for each in together if each.text}
    pairs = list(zip(lines(tmp_path / "distilled/train.en"), lines(tmp_path / "distilled/train.fr"), strict=True))
    assert (set(pairs), len(pairs)) == (said, len(said))
    assert {line.split("\t")[0] for line in lines(tmp_path / "distilled/train.tsv")} == {"forward-1"}


def test_samples_are_drawn_anew_for_each_teacher(
    tiny_run: Path, text: tuple[Path, Path], tmp_path: Path, diversify: Callable[..., int]
) -> None:
    for side, path in zip(("en", "fr"), text, strict=True):
        (tmp_path / f"few.{side}").write_text("".join(f"{line}\n" for line in ["", *lines(path)[:20]]))
    few = ("--source", "few.en", "--target", "few.fr", "--output", "out", "--n-best", 2)
    options = ("--sample", "--temperature", 0.8, "--top-k", 20, "--seed", 5)
    assert diversify("--forward", tiny_run, tiny_run, *few, *options) == 0
    origins = [line.split("\t") for line in lines(tmp_path / "out/train.tsv")]
    assert {int(number) for _, number in origins} == set(range(2, 22))  # the first line is empty
    drawn = Translator.load(tiny_run, "cpu").sample(lines(text[0])[:20], 2, temperature=0.8, top_k=20, seed=6)
    written = zip(origins, lines(tmp_path / "out/train.fr"), strict=True)
    second = [line for (name, _), line in written if name == "forward-2"]
    assert len(second) > 20
    assert set(second) <= {each.line for samples in drawn for each in samples}


def test_teachers_that_know_their_text_by_heart(
    tiny_run: Path, text: tuple[Path, Path], tmp_path: Path, diversify: Callable[..., int], capfd: Any
) -> None:
    known = Translator.load(tiny_run, "cpu", beam_size=1).translate(lines(text[0])[:40])
    (tmp_path / "a").write_text("".join(f"{each.source}\n" for each in known))
    (tmp_path / "b").write_text("".join(f"{each.line or 'nothing'}\n" for each in known))
    options = ("--source", "a", "--target", "b", "--output", "out", "--beam-size", 1)
    assert diversify("--forward", tiny_run, *options) == 0
    assert "forward-1" in (error := capfd.readouterr().err)
    assert "on this text: above 60" in error
    (forward,) = json.loads((tmp_path / "out/summary.json").read_text())["origins"][1:]
    assert forward["bleu"] > 95
    assert (forward["written"], forward["duplicates"] + forward["empty"]) == (0, 40)
    (tmp_path / "b").write_text("autre chose .\n" * 40)
    assert diversify("--forward", tiny_run, *options) == 0
    assert "warning" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "there is no run to translate with: give --forward RUN"),
        (["--forward", "nowhere"], "no checkpoint at nowhere"),
        (["--forward", "RUN", "--backward", "RUN"], "RUN translates en to fr: as --backward, beside --forward RUN, it"),
        (["--forward", "RUN", "--source", "a"], "--source and --target belong together"),
        (["--forward", "RUN", "--source", "a", "--target", "b"], "no such file: a"),
        (["--forward", "RUN", "--forward-share", "1.5"], "--forward-share is at most 1"),
        (["--forward", "RUN", "--top-k", "3"], "--top-k is an option of sampling: add --sample"),
        (["--forward", "RUN", "--sample", "--beam-size", "3"], "--beam-size is an option of searching"),
        (["--forward", "RUN", "--beam-size", "0"], "must be at least 1, not 0"),
    ],
)
def test_mistakes_are_told_in_one_line(
    options: list[str], message: str, tiny_run: Path, tmp_path: Path, diversify: Callable[..., int], capfd: Any
) -> None:
    line = [str(tiny_run) if each == "RUN" else each for each in options]
    assert diversify(*line, "--output", "out") == 2
    error = capfd.readouterr().err.splitlines()
    assert message.replace("RUN", str(tiny_run)) in error[-1] or message in error[-1]
    assert error[-1].startswith("error: ")
    assert not (tmp_path / "out").exists()


def test_the_text_that_is_translated_is_not_replaced(
    backward_run: Path, text: tuple[Path, Path], diversify: Callable[..., int], capfd: Any
) -> None:
    before = contents(text[0].parent)
    assert diversify("--backward", backward_run, "--output", text[0].parent) == 2
    assert capfd.readouterr().err.endswith("train.en is the text that is translated: give another --output\n")
    assert contents(text[0].parent) == before


def test_nothing_left_to_write(
    tiny_run: Path, text: tuple[Path, Path], tmp_path: Path, diversify: Any, capfd: Any
) -> None:
    shares = ("--original-share", 0, "--forward-share", 1e-9, "--beam-size", 1)
    assert diversify("--forward", tiny_run, *shares, "--output", "out", "--source", text[0], "--target", text[1]) == 2
    assert "no pair is left to write" in capfd.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["parts"]
