"""`python scripts/benchmark.py`: what it measures and writes, at tiny size. No test asserts a time."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

SMALL = ("model.embedding_size=8", "model.hidden_size=16", "--threads", "1", "--device", "cpu")

# Byte-pair pieces; the targets have 10, 9, 7 and 7 tokens with end marks.
SOURCE = [
    "the r@@ ed dog se@@ es the hou@@ se",
    "a c@@ at se@@ es a dog",
    "the hou@@ se is r@@ ed",
    "the c@@ at is r@@ ed",
]
TARGET = [
    "le chi@@ en rou@@ ge voit la mai@@ son",
    "un ch@@ at voit un chi@@ en .",
    "la mai@@ son est rou@@ ge",
    "le ch@@ at est rou@@ ge",
]

TRAIN_KEYS = {
    "target_tokens_per_second",
    "source_target_tokens_per_second",
    "milliseconds_per_update",
    "target_fill",
    "peak_rss_mib",
    "gflop_per_update",
    "gflops_reached",
    "gflops_machine",
    "share_of_machine",
}
TRANSLATE_KEYS = {"sentences_per_second", "output_tokens_per_second", "bleu", "mean_output_length", "peak_rss_mib"}


@pytest.fixture
def benchmark(call: Callable[..., int], capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run the script in this process; return what it prints."""

    def run(*arguments: str) -> str:
        assert call("benchmark", *arguments) == 0, capfd.readouterr().err
        return capfd.readouterr().out

    return run


@pytest.fixture
def segmented(tmp_path: Path) -> list[str]:
    """Overrides that name parallel text of pieces."""
    for name, lines in (("train.en", SOURCE * 4), ("train.fr", TARGET * 4), ("test.en", SOURCE), ("test.fr", TARGET)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = [f"data.{split}.{side}={split}.{language}" for split in ("train", "test") for side, language in SIDES]
    return ["experiment=benchmark", *files, "search.max_length_offset=2", *SMALL]


SIDES = (("source", "en"), ("target", "fr"))


def written(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_training_on_segmented_text(
    benchmark: Callable[..., str], segmented: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarking.machine.SHAPES", {"cpu": ((64, 64, 64),)})
    before = written(tmp_path)
    options = ("--repeats", "2", "--updates", "2", "--profile", "batch.size=8", "--json", "figures.json")
    printed = benchmark("train", *segmented, *options)
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures.keys() >= TRAIN_KEYS
    assert figures["model"]["fast"] == "auto"
    assert all(figures[key] > 0 for key in TRAIN_KEYS)
    # Two batches of eight of the sixteen sentences make an epoch, whatever their order.
    assert figures["target_tokens_per_update"] == 4 * (10 + 9 + 7 + 7) / 2
    assert 0 < figures["target_fill"] <= 1
    assert len(figures["target_tokens_per_second_of_repeats"]) == 2
    first, second, third = figures["gflops_machine_of_measurements"]
    of_repeats = zip(figures["gflops_reached_of_repeats"], ((first + second) / 2, (second + third) / 2), strict=True)
    shares = [reached / machine for reached, machine in of_repeats]
    assert figures["share_of_machine"] == pytest.approx(sum(shares) / 2)
    assert figures["share_of_machine_spread"] == pytest.approx(abs(shares[0] - shares[1]) / (sum(shares) / 2))
    assert figures["vocabulary"] == [4 + len({piece for line in (*SOURCE, *TARGET) for piece in line.split()})] * 2
    assert figures["phases"].keys() == {"data", "encoder", "decoder", "loss", "backward", "optimizer"}
    assert all(seconds > 0 for seconds in figures["phases"].values())
    assert "aten::" in printed
    assert "target_tokens_per_second" in printed
    assert {name for name in written(tmp_path) - before if not name.startswith("data/cache/")} == {"figures.json"}


def test_translating_with_random_weights(benchmark: Callable[..., str], segmented: list[str], tmp_path: Path) -> None:
    printed = benchmark("translate", *segmented, "--repeats", "1", "--profile", "--json", "figures.json")
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures.keys() >= TRANSLATE_KEYS
    assert figures["sentences"] == 4
    assert figures["mean_output_length"] <= 2 * (9 + 1) + 2
    assert 0 <= figures["bleu"] < 50
    assert figures["phases"].keys() == {"text", "encoder", "decoder", "search"}
    assert all(seconds > 0 for seconds in figures["phases"].values())
    assert "random weights" in printed


def test_translating_with_a_checkpoint(benchmark: Callable[..., str], tiny_run: Path, tmp_path: Path) -> None:
    options = ("search.beam_size=3", "--reference", "--threads", "1", "--repeats", "1", "--json", "figures.json")
    scoring = ("bleu_tokenize=char", "lowercase=true")  # as in a training run
    benchmark("translate", "--checkpoint", str(tiny_run), *options, *scoring)
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures.keys() >= TRANSLATE_KEYS
    assert (figures["search"]["beam_size"], figures["search"]["max_length_offset"]) == (3, 5)
    assert figures["step"] in (50, 100)
    assert figures["model"]["fast"] == "off"
    assert "case:lc|eff:no|tok:char" in figures["bleu_signature"]


def test_scaling(benchmark: Callable[..., str], tmp_path: Path) -> None:
    sizes = ("--lengths", "6", "3", "--batches", "2", "4", "--repeats", "2")
    benchmark("scaling", "tokenizer.vocab_size=300", *SMALL, *sizes, "--reference", "--json", "figures.json")
    with (tmp_path / "outputs/benchmark/scaling.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["length"], row["sentences"]) for row in rows] == [("3", "2"), ("3", "4"), ("6", "2"), ("6", "4")]
    assert all(float(row["target_tokens_per_second"]) > 0 for row in rows)
    assert (tmp_path / "outputs/benchmark/scaling.png").read_bytes().startswith(b"\x89PNG")
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert (len(figures["rows"]), figures["model"]["fast"]) == (4, "off")


def test_data(benchmark: Callable[..., str], segmented: list[str], tmp_path: Path) -> None:
    printed = benchmark("data", *segmented, "--json", "figures.json")
    rows = json.loads((tmp_path / "figures.json").read_text())["rows"]
    assert [row["step"] for row in rows] == [line.split("  ")[0] for line in printed.splitlines()[1:]]
    assert [row["pairs"] for row in rows] == [16] * 6
    assert all(row["seconds"] > 0 and row["pairs_per_second"] > 0 for row in rows)
    assert written(tmp_path) == {"figures.json", "train.en", "train.fr", "test.en", "test.fr"}


def test_startup(
    benchmark: Callable[..., str], tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command runs, if only once: no time to warm up."""

    def once(work: Callable[[], object], repeats: int) -> list[float]:
        work()
        return [1.0] * repeats

    monkeypatch.setattr("benchmarking.startup.seconds_of_repeats", once)
    benchmark("startup", "--checkpoint", str(tiny_run), "--repeats", "1", "--json", "figures.json")
    rows = json.loads((tmp_path / "figures.json").read_text())["rows"]
    assert rows[-1]["command"] == "first translation"
    assert all(row["least"] == row["seconds"] == row["most"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "modle=luong"], "modle"),
        (["train", "model.hidden=3"], "unknown key 'model.hidden'; did you mean 'model.hidden_size'?"),
        (["train", "model=lung"], "unknown model 'lung'"),
        (["train", "--checkpoint", "run"], "--checkpoint belongs to translate"),
        (["translate", "--checkpoint", "nowhere"], "no checkpoint at nowhere"),
        (["train", "data=text"], "data.train.source=FILE"),
    ],
)
def test_mistakes_are_told_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, call: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert call("benchmark", *arguments) == 2
    errors = capfd.readouterr().err
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert message in errors
    assert written(tmp_path) == set()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("search.beams=3", "unknown key 'search.beams'"),
        ("search=greedy", "search"),
        ("search.beam_size=0", "search.beam_size=0 is out of range"),
        ("model.hidden_size=128", "do not fit the overrides of model"),
    ],
)
def test_overrides_of_a_checkpoint(
    override: str, message: str, tiny_run: Path, call: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert call("benchmark", "translate", "--checkpoint", str(tiny_run), "data.cache_dir=cache", override) == 2
    assert message in capfd.readouterr().err
