"""`python -m nmt.evaluate`: the scores of a run, on standard output and in its folder."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tests.runs import ROOT

SOURCES = ["He sleeps.", "She helps her brother."]
TARGETS = ["Il dort.", "Elle aide son frère."]


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    """A run of one's own, to be written to."""
    shutil.copytree(tiny_run, tmp_path / "run", ignore=shutil.ignore_patterns("evaluation", "tensorboard"))
    return tmp_path / "run"


@pytest.fixture
def evaluate(run: Path, call: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Evaluate the run, and return what metrics.json holds."""

    def score(*options: str, split: str = "test", folder: Path | None = None) -> dict[str, Any]:
        done = call("evaluate", "checkpoint=run", *options, f"split={split}", "threads=1")
        assert done.returncode == 0, done.stderr
        folder = folder or run / "evaluation" / split
        found: dict[str, Any] = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        return found

    return score


def test_the_command_writes_all_that_the_contract_names(tiny_run: Path, run: Path, call: Callable[..., Any]) -> None:
    done = call("evaluate", "checkpoint=run", "num_heatmaps=2", "threads=1")
    assert done.returncode == 0, done.stderr
    folder = run / "evaluation" / "test"
    files = {"metrics.json", "hypotheses.txt", "alignments.pharaoh", "alignments.words", "report.html", "heatmaps"}
    assert {path.name for path in folder.iterdir()} == files
    assert len(list((folder / "heatmaps").glob("*.png"))) == 2
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    contract = {"bleu", "chrf", "ter", "signature", "bleu_ci95", "bleu_by_length", "aer", "attention_entropy"}
    assert contract | {"repetition_rate", "sentences", "seconds"} <= metrics.keys()
    assert (metrics["sentences"], metrics["beam_size"], metrics["split"]) == (12, 2, "test")
    assert f"{metrics['bleu']:.2f}" in done.stdout
    assert metrics["signature"]["bleu"] in done.stdout
    assert "run/evaluation/test/report.html" in done.stdout
    # The training run evaluated itself in the same way.
    own = json.loads((tiny_run / "evaluation/test/metrics.json").read_text(encoding="utf-8"))
    for name in ("bleu", "chrf", "ter", "aer", "attention_entropy", "corpus", "step", "signature"):
        assert metrics[name] == own[name]
    hypotheses = [(each / "evaluation/test/hypotheses.txt").read_text(encoding="utf-8") for each in (run, tiny_run)]
    assert hypotheses[0] == hypotheses[1]
    assert hypotheses[0].count("\n") == 12


def test_the_validation_split_against_a_baseline(evaluate: Callable[..., dict[str, Any]]) -> None:
    metrics = evaluate("baseline=run", "search.beam_size=1", "num_heatmaps=0", split="validation")
    assert metrics["beam_size"] == metrics["baseline"]["beam_size"] == 1
    assert metrics["baseline"]["bleu"]["difference"] == 0
    assert metrics["aer"] is not None


def test_all_of_the_search_can_be_set_and_is_recorded(evaluate: Callable[..., dict[str, Any]]) -> None:
    search: dict[str, Any] = {
        "coverage_penalty": 0.2,
        "max_length_ratio": 1.5,
        "max_length_offset": 3,
    }
    search |= {"batch_unit": "tokens", "batch_size": 70}
    given = (*(f"search.{name}={value}" for name, value in search.items()), "search.replace_unknown=true")
    metrics = evaluate(*given, "num_heatmaps=0")
    assert search.items() <= metrics.items()
    assert not metrics["replace_unknown"]  # subwords spell every word
    assert (metrics["precision"], metrics["beam_size"]) == ("fp32", 2)


@pytest.mark.parametrize("options", [(), ("search.length_penalty=0.3", "precision=int8")])
def test_a_baseline_is_translated_as_the_run_is(
    evaluate: Callable[..., dict[str, Any]], run: Path, options: tuple[str, ...]
) -> None:
    """Whatever search it was trained with."""
    other = shutil.copytree(run, run.parent / "other") / "checkpoints/best/config.yaml"
    other.with_name("manifest.json").unlink()
    text = other.read_text(encoding="utf-8")
    changed = text.replace("beam_size: 2\n  length_penalty: 1.0", "beam_size: 1\n  length_penalty: 0.0")
    assert changed != text
    other.write_text(changed, encoding="utf-8")
    found = evaluate("baseline=other", "num_heatmaps=0", *options)
    names = ("beam_size", "length_penalty", "coverage_penalty", "precision", "step")
    assert [found["baseline"][name] for name in names] == [found[name] for name in names]
    assert found["baseline"]["bleu"]["difference"] == 0


def test_a_baseline_of_other_languages_is_refused(run: Path, call: Callable[..., Any]) -> None:
    other = shutil.copytree(run, run.parent / "other") / "checkpoints/best/config.yaml"
    other.with_name("manifest.json").unlink()
    other.write_text(other.read_text(encoding="utf-8").replace("target_language: fr", "target_language: de"))
    for option, message in (
        ("baseline=other", "baseline=other translates en to de, but checkpoint=run translates en to fr"),
        ("ensemble=[other]", "translates en to de, and run/checkpoints/best en to fr: they cannot translate together"),
    ):
        done = call("evaluate", "checkpoint=run", option, "threads=1")
        assert done.returncode == 2
        assert message in done.stderr


def test_scores_are_those_the_run_was_trained_with(evaluate: Callable[..., dict[str, Any]], run: Path) -> None:
    path = run / "checkpoints/best/config.yaml"
    path.with_name("manifest.json").unlink()
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("target_language: fr", "target_language: zh"), encoding="utf-8")
    found = evaluate("num_heatmaps=0")
    assert (found["bleu_tokenize"], found["lowercase"]) == ("zh", False)
    assert "tok:zh" in found["signature"]["bleu"]
    assert evaluate("num_heatmaps=0", "bleu_tokenize=char", "lowercase=true")["bleu_tokenize"] == "char"
    path.write_text(text.replace("lowercase: false", "lowercase: true"), encoding="utf-8")
    assert evaluate("num_heatmaps=0")["lowercase"] is True
    assert evaluate("num_heatmaps=0", "lowercase=false")["lowercase"] is False


def test_a_missing_tokenizer_is_told_before_translating(call: Callable[..., Any], run: Path) -> None:
    done = call("evaluate", "checkpoint=run", "bleu_tokenize=ja-mecab")
    assert done.returncode == 2
    assert done.stderr.startswith("error: bleu_tokenize=ja-mecab is not available here")
    assert not (run / "evaluation").exists()


def test_a_checkpoint_is_evaluated_into_its_run(run: Path, call: Callable[..., Any]) -> None:
    for name in ("best", "last"):
        done = call("evaluate", f"checkpoint=run/checkpoints/{name}", "num_heatmaps=0", "threads=1")
        assert done.returncode == 0, done.stderr
        assert not (run / "checkpoints" / name / "evaluation").exists()
    assert sorted(path.name for path in (run / "evaluation").iterdir()) == ["test", "test-last"]
    assert "written to run/evaluation/test-last: look at" in done.stdout


def test_a_sweep_overwrites_nothing(run: Path, call: Callable[..., Any]) -> None:
    done = call("evaluate", "-m", "checkpoint=run", "search.beam_size=1,3", "num_heatmaps=0", "threads=1")
    assert done.returncode == 0, done.stderr
    folders = {path.name: json.loads((path / "metrics.json").read_text()) for path in (run / "evaluation").iterdir()}
    assert {name: found["beam_size"] for name, found in folders.items()} == {
        "test-search.beam_size=1": 1,
        "test-search.beam_size=3": 3,
    }


def test_eight_bits_have_scores_but_no_gradients(
    evaluate: Callable[..., dict[str, Any]], call: Callable[..., Any]
) -> None:
    whole, rounded = evaluate("num_heatmaps=0"), evaluate("num_heatmaps=0", "precision=int8")
    assert rounded["bleu"] == pytest.approx(whole["bleu"], abs=5)
    done = call("evaluate", "checkpoint=run", "precision=int8", "saliency=true", "threads=1")
    assert done.returncode == 2
    assert "saliency needs gradients, and precision=int8 has none: leave one of the two out" in done.stderr


def test_files_of_ones_own(evaluate: Callable[..., dict[str, Any]], run: Path) -> None:
    for name, lines in (("in", SOURCES), ("out", TARGETS), ("gold", ["0-0 1-1", "0-0 1-1 2-2 3-3"])):
        (run.parent / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = ("data.test.source=in", "data.test.target=out")
    folder = run / "evaluation" / "test-of-in"
    metrics = evaluate(*files, "num_heatmaps=0", folder=folder)
    assert (metrics["sentences"], metrics["aer"]) == (2, None)
    assert evaluate(*files, "data.test.alignment=gold", "num_heatmaps=0", folder=folder)["aer"] is not None


def test_saliency_and_links_by_threshold(evaluate: Callable[..., dict[str, Any]], run: Path) -> None:
    metrics = evaluate("saliency=true", "num_heatmaps=1", "alignment.method=threshold", "alignment.threshold=0.2")
    assert 0 <= metrics["saliency_aer"] <= 1
    assert -1 <= metrics["saliency_attention_spearman"] <= 1
    assert -1 <= metrics["saliency_attention_kendall"] <= 1
    assert 0 <= metrics["coverage_deficit"] <= 1
    assert (metrics["alignment_method"], metrics["alignment_threshold"]) == ("threshold", 0.2)
    page = (run / "evaluation/test/report.html").read_text(encoding="utf-8")
    assert (page.count("<nmt-alignment data-line="), "<h2>Attention and saliency</h2>" in page) == (1, True)


def test_a_reverse_run(evaluate: Callable[..., dict[str, Any]], run: Path, call: Callable[..., Any]) -> None:
    back = run.parent / "back"
    shutil.copytree(run, back)
    done = call("evaluate", "checkpoint=run", "reverse=back")
    assert done.returncode == 2
    assert done.stderr.startswith("error: reverse=back translates en to fr, but checkpoint=run translates en to fr")
    assert call("evaluate", "checkpoint=run", "reverse=nowhere").stderr.startswith("error: no checkpoint at nowhere")
    # Its vocabulary is joint, so that it can read French as well, if not translate it.
    for manifest in back.rglob("manifest.json"):
        manifest.unlink()
    for path in back.rglob("config.yaml"):
        text = path.read_text(encoding="utf-8")
        swapped = text.replace("source_language: en", "source_language: fr")
        path.write_text(swapped.replace("target_language: fr", "target_language: en"), encoding="utf-8")
    metrics = evaluate("reverse=back", "num_heatmaps=0")
    assert 0 <= metrics["intersection_aer"] <= 1
    assert metrics["intersection_recall"] <= min(metrics["alignment_recall"], metrics["reverse_recall"])
    assert metrics["reverse"] == "back"
    files = [run / "evaluation/test" / name for name in ("alignments.pharaoh", "alignments.intersection.pharaoh")]
    both, agreed = ([set(line.split()) for line in path.read_text().split("\n")] for path in files)
    assert all(some <= every for some, every in zip(agreed, both, strict=True))


def test_an_ensemble_is_scored_beside_the_run(run: Path, evaluate: Callable[..., dict[str, Any]]) -> None:
    options = ("search.beam_size=2", "num_heatmaps=0")
    alone = evaluate(*options)
    folder = run / "evaluation" / "test-with-run_checkpoints_last"
    together = evaluate(*options, "ensemble=[run/checkpoints/last]", folder=folder)
    assert (alone["ensemble"], together["ensemble"]) == ([], ["run/checkpoints/last"])
    assert together["bleu"] > 0
    assert alone == {**json.loads((run / "evaluation/test/metrics.json").read_text(encoding="utf-8"))}
    assert "with run/checkpoints/last" in (folder / "report.html").read_text(encoding="utf-8")


def test_an_ensemble_is_not_explained(run: Path, call: Callable[..., Any]) -> None:
    done = call("evaluate", "checkpoint=run", "ensemble=[run]", "saliency=true", "threads=1")
    assert (done.returncode, done.stderr) == (
        2,
        "error: saliency explains one model, not several: leave saliency or the ensemble out\n",
    )


def test_the_perplexity_is_that_of_the_validation(run: Path, evaluate: Callable[..., dict[str, Any]]) -> None:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    (expected,) = (each["perplexity"] for each in records if each["event"] == "validation" and each["step"] == 100)
    found = evaluate("search.beam_size=1", "num_heatmaps=0", split="validation")
    assert found["step"] == 100
    assert found["perplexity"] == pytest.approx(expected, rel=1e-4)


def test_translations_that_were_cut_are_counted(evaluate: Callable[..., dict[str, Any]], run: Path) -> None:
    short = evaluate("search.max_length_ratio=0.01", "search.max_length_offset=1", "num_heatmaps=0")
    assert (short["cut_translations"], short["translated_in_parts"]) == (12, 0)
    weights = run / "checkpoints/best/model.safetensors"
    save_file(load_file(weights), weights, {"step": "100", "longest": "2"})
    (weights.parent / "manifest.json").unlink()
    assert evaluate("num_heatmaps=0")["translated_in_parts"] == 12


def test_a_closed_pipe_is_told_by_the_status_alone(run: Path, tmp_path: Path) -> None:
    """The files are complete; the reader of the table has gone."""
    line = [sys.executable, "-m", "nmt.evaluate", "checkpoint=run", "num_heatmaps=0", "threads=1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(line, cwd=tmp_path, env=environment, stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
    assert (run / "evaluation" / "test" / "metrics.json").is_file()
