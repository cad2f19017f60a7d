"""A metric is one entry: everything that shows or uses metrics finds it there."""

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from rich.console import Console
from sacrebleu.metrics.chrf import CHRF
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nmt.alignment.weights import Alignment
from nmt.config.schema import ModelConfig, SearchConfig, TokenizerConfig, TrainConfig, TrainerConfig
from nmt.errors import UserError
from nmt.evaluation.baseline import Baseline, translator_settings
from nmt.evaluation.evaluator import evaluate_split
from nmt.evaluation.outcome import Outcome
from nmt.evaluation.registry import METRICS, Display, Metric, by_sacrebleu, check_watched
from nmt.evaluation.report import print_table
from nmt.models.build import build_model
from nmt.text.tokenizer import build_tokenizers
from nmt.training.progress import Progress
from nmt.training.reporting import Reporter
from nmt.training.validation import Validator
from nmt.translator import Translation

SOURCES, REFERENCES = ["a b", "c d e"], ["A B", "C D E"]


class Doubling:
    """Says every word twice, in capitals."""

    def __init__(self) -> None:
        self.search, self.precision, self.device = SearchConfig(), "fp32", torch.device("cpu")
        self.checkpoint: Path | None = None
        self.ensemble: list[Path] = []
        self.replaces_unknown = False
        self.step: int | None = None

    def translate(self, sentences: Sequence[str]) -> list[Translation]:
        return [self._translate(sentence.split(), sentence) for sentence in sentences]

    def _translate(self, words: list[str], source: str) -> Translation:
        target = [word.upper() for word in words for _ in range(2)]
        weights = np.repeat(np.eye(len(words)), 2, axis=0)
        text = " ".join(target)
        return Translation(
            words, target, weights, source=source, text=text, score=0.0, log_prob=0.0, pieces=[], words=([], [])
        )

    def greedy(self, sentences: Sequence[str]) -> list[Translation]:
        return self.translate(sentences)

    def align(self, sources: Sequence[str], targets: Sequence[str], words: str = "spaces") -> list[Alignment]:
        raise AssertionError("there is no gold")

    def cross_entropy(self, sources: Sequence[str], targets: Sequence[str]) -> float:
        return 2.0

    def detokenize(self, lines: Sequence[str]) -> list[str]:
        return list(lines)


def length_ratio(outcome: Outcome) -> float:
    """Words of the translations for each word of the references."""
    hypotheses, references = ([len(line.split()) for line in side] for side in (outcome.hypotheses, outcome.references))
    return sum(hypotheses) / sum(references)


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Metric(measure=length_ratio, table_display=Display("length ratio", 3, "words"), better="lower")
    monkeypatch.setitem(METRICS, "length_ratio", entry)


def corpus() -> datasets.Dataset:
    return datasets.Dataset.from_dict({"source": SOURCES, "target": REFERENCES})


def table(metrics: dict[str, Any]) -> str:
    stream = io.StringIO()
    print_table(metrics, Console(file=stream, width=120))
    return stream.getvalue()


@pytest.mark.usefixtures("scratch")
def test_evaluation_table_and_report_have_it(tmp_path: Path) -> None:
    metrics = evaluate_split(Doubling(), corpus(), tmp_path / "test", split="test")
    assert json.loads((tmp_path / "test" / "metrics.json").read_text(encoding="utf-8"))["length_ratio"] == 2.0
    (row,) = [line.split("│") for line in table(metrics).split("\n") if "length ratio" in line]
    assert [cell.strip() for cell in row[1:4]] == ["length ratio", "2.000", "words"]
    page = (tmp_path / "test" / "report.html").read_text(encoding="utf-8")
    assert "<div class=card>Length ratio<b>2.000</b><span class=quiet>words</span></div>" in page
    assert "<td>length_ratio</td><td>2</td>" in page


def test_a_metric_of_sacrebleu_brings_its_signature_and_its_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(tokenize: str, lowercase: bool) -> CHRF:
        return CHRF(word_order=2, lowercase=lowercase)

    entry = Metric(measure=by_sacrebleu(build), table_display=Display("chrF++"), better="higher", sacrebleu=build)
    monkeypatch.setitem(METRICS, "chrf2", entry)
    baseline = Baseline("runs/b", REFERENCES, translator_settings(Doubling()))
    metrics = evaluate_split(Doubling(), corpus(), tmp_path / "test", split="test", baseline=baseline)
    assert metrics["baseline"]["chrf2"]["baseline"] == pytest.approx(100)
    shown = table(metrics)
    assert "chrF++ difference" in shown
    assert f"chrf2|{metrics['signature']['chrf2']}" in shown
    assert "nw:2" in metrics["signature"]["chrf2"]
    page = (tmp_path / "test" / "report.html").read_text(encoding="utf-8")
    assert "<td>chrF++</td><td>100.0</td>" in page
    assert "<td>signature of chrf2</td>" in page


@pytest.mark.usefixtures("scratch")
def test_validation_measures_it_and_it_may_choose_the_best_checkpoint() -> None:
    check_watched("length_ratio", has_gold=False)
    tokenizers = build_tokenizers(SOURCES, REFERENCES, TokenizerConfig(kind="whitespace"))
    sizes = len(tokenizers.source), len(tokenizers.target)
    model = build_model(ModelConfig(embedding_size=8, hidden_size=16), *sizes, joint=True)
    config = TrainConfig(
        trainer=TrainerConfig(metric="length_ratio"), search=SearchConfig(max_length_ratio=0, max_length_offset=5)
    )
    validate = Validator(corpus(), tokenizers, config, torch.device("cpu"))
    found = validate(model).metrics["length_ratio"]
    assert 0 <= found <= 2
    progress = Progress()
    assert [
        progress.improves("length_ratio", {"length_ratio": value, "loss": 1.0})
        for value in (found, found + 1, found - 1)
    ] == [True, False, True]


@pytest.mark.usefixtures("scratch")
def test_log_line_and_tensorboard_have_it(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=False, width=80)
    with Reporter(tmp_path, config=TrainConfig(), console=console) as reporter:
        reporter.start("")
        reporter.validation(step=3, metrics={"loss": 1.0, "length_ratio": 1.25}, samples=[])
        reporter.finish({"length_ratio": 1.5})
    assert isinstance(console.file, io.StringIO)
    assert "validation at update 3: loss 1.000  length_ratio 1.250\n" in console.file.getvalue()
    tags = set(EventAccumulator(str(tmp_path / "tensorboard")).Reload().Tags()["scalars"])
    assert tags == {"validation/loss", "validation/length_ratio", "test/length_ratio"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "bluu",
            "unknown trainer.metric 'bluu': choose one of aer, bleu, chrf, loss, perplexity; did you mean 'bleu'?",
        ),
        ("ter", "unknown trainer.metric 'ter': choose one of aer, bleu"),
        ("attention_entropy", "unknown trainer.metric 'attention_entropy': choose"),
        ("aer", "trainer.metric=aer needs gold alignments of the validation text: set data.validation.alignment"),
    ],
)
def test_a_metric_that_cannot_choose_is_refused(name: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        check_watched(name, has_gold=False)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", ["loss", "perplexity", "bleu", "chrf", "aer"])
def test_metrics_that_can_choose(name: str) -> None:
    check_watched(name, has_gold=True)


def test_an_unknown_metric_ends_the_command_before_any_work(
    call: Callable[..., Any], tiny_options: list[str], tmp_path: Path
) -> None:
    done = call("train", "run_dir=run", *tiny_options, "trainer.max_steps=1", "trainer.metric=bluu")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown trainer.metric 'bluu': choose one of aer, bleu")
    assert not (tmp_path / "run").exists()
