import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarking import training, workload
from benchmarking.arithmetic import Work
from benchmarking.profiling import TRAINING_PHASES, training_phases
from benchmarking.training import Repeat, repeat_updates, speed
from benchmarking.translation import measure_translation
from benchmarking.workload import random_sentences, start_training, translator_of
from nmt.config.schema import BatchConfig, GuidedAlignmentConfig, ModelConfig, SearchConfig, TrainConfig, TrainerConfig
from nmt.data.batch import Batch
from nmt.errors import UserError
from nmt.evaluation.metrics import bleu
from nmt.fast.accelerate import replaced_methods
from nmt.models.seq2seq import Seq2Seq
from nmt.text.tokenizer import Tokenizers
from nmt.text.vocabulary import Vocabulary
from nmt.training.trainer import Trainer
from nmt.translation import Translation, empty_translation
from nmt.translator import Translator


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    """A trainer on twelve pairs of five tokens, three a batch; its run would be over after one update."""
    config = TrainConfig(
        run_dir=str(tmp_path),
        batch=BatchConfig(unit="sentences", size=3, max_length=5),
        model=ModelConfig(embedding_size=4, hidden_size=6),
        trainer=TrainerConfig(device="cpu", max_steps=1),
    )
    return start_training(config, random_sentences(20, sentences=12, length=5))


@pytest.mark.parametrize("fast", ["auto", "off"])
def test_the_fast_path_is_whole(fast: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The C library's heap is set, too, as `nmt.train` does it: without that an update took 3% longer."""
    calls = []
    monkeypatch.setattr(workload, "keep_freed_memory", lambda: calls.append("heap"))
    config = TrainConfig(run_dir=str(tmp_path), model=ModelConfig(embedding_size=4, hidden_size=6, fast=fast))
    model = start_training(config, random_sentences(20, sentences=12, length=5)).model
    assert (calls, bool(replaced_methods(model.decoder))) == ((["heap"], True) if fast == "auto" else ([], False))


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_what_translates_is_accelerated(precision: str) -> None:
    """Also where it is a copy."""
    config = TrainConfig(model=ModelConfig(embedding_size=4, hidden_size=6), trainer=TrainerConfig(device="cpu"))
    tokenizers = random_sentences(20, sentences=12, length=5).tokenizers
    model = translator_of(config, tokenizers, precision=precision).model
    assert isinstance(model, Seq2Seq)
    assert "recur" in replaced_methods(model.encoder)


def test_attention_is_guided_as_in_training(tmp_path: Path) -> None:
    guided = TrainerConfig(device="cpu", guided_alignment=GuidedAlignmentConfig(weight=1.0))
    config = TrainConfig(run_dir=str(tmp_path), model=ModelConfig(embedding_size=4, hidden_size=6), trainer=guided)
    prepared = random_sentences(20, sentences=12, length=5)
    (batch, *_) = next(start_training(config, prepared).updates())
    assert batch.alignment is not None
    assert torch.equal(batch.alignment[0, :4, :4], torch.eye(4))
    with pytest.raises(UserError, match="needs attention, which model=fixed_context lacks"):
        start_training(replace(config, model=replace(config.model, decoder="fixed_context")), prepared)


def test_two_passes_are_twice_the_arithmetic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And as many tokens, which are counted once."""
    monkeypatch.setattr(training, "gflops_apart", lambda *_: contextlib.nullcontext(lambda: 1.0))
    figures = []
    for consistency in (0.0, 1.0):
        config = TrainConfig(
            run_dir=str(tmp_path),
            batch=BatchConfig(unit="sentences", size=3, max_length=5),
            model=ModelConfig(embedding_size=4, hidden_size=6, dropout=0.1),
            trainer=TrainerConfig(device="cpu", consistency=consistency),
        )
        trainer = start_training(config, random_sentences(20, sentences=12, length=5))
        figures.append(training.measure_training(config, trainer, updates=2, repeats=1))
    once, twice = figures
    assert twice["gflop_per_update"] == pytest.approx(2 * once["gflop_per_update"])
    assert twice["target_tokens_per_update"] == once["target_tokens_per_update"] == 15


def without_repeats(work: Work) -> Work:
    """The sizes that do not depend on which words were drawn."""
    return replace(work, source_repeats=0, target_repeats=0)


def test_random_sentences_have_one_length_and_no_padding(trainer: Trainer) -> None:
    batches = list(trainer.loader)
    assert without_repeats(Work.of(batches)) == Work(12, 60, 60, 60, 12 * 25, 12 * 25)
    assert all(batch.target_out.max() < 20 for batch in batches)
    assert trainer.model.output.out_features == 20


def test_every_repeat_goes_on_through_the_corpus(monkeypatch: pytest.MonkeyPatch, trainer: Trainer) -> None:
    seen: list[int] = []
    update = trainer.update

    def watched(batches: list[Batch]) -> None:
        seen.extend(row for batch in batches for row in batch.rows)
        update(batches)

    monkeypatch.setattr(trainer, "update", watched)
    measured = repeat_updates(trainer, updates=2, repeats=3)
    assert [without_repeats(each.work) for each in measured] == [Work(6, 30, 30, 30, 150, 150)] * 3
    assert trainer.progress.step == 2 * (1 + 3)
    assert sorted(seen[:12]) == sorted(seen[12:]) == list(range(12))  # no pair is left out


def test_speed_is_the_median_over_repeats() -> None:
    works = [Work(1, 10, tokens, 40, 0) for tokens in (20, 20, 20)]
    figures = speed([Repeat(seconds, 2, work) for seconds, work in zip((1.0, 4.0, 2.0), works, strict=True)])
    assert figures["target_tokens_per_second"] == 10
    assert figures["source_target_tokens_per_second"] == 15
    assert figures["target_tokens_per_second_of_repeats"] == [20, 5, 10]
    assert figures["spread"] == (20 - 5) / 10
    assert figures["milliseconds_per_update"] == 1_000
    assert figures["target_fill"] == 0.5


def test_phases_leave_no_trace(trainer: Trainer) -> None:
    seconds = training_phases(trainer, updates=2)
    assert tuple(seconds) == TRAINING_PHASES
    assert all(each > 0 for each in seconds.values())
    assert "backward" not in vars(trainer)
    assert not trainer.model.encoder._forward_hooks
    assert not trainer.model.decoder._forward_hooks


def test_translations_are_scored_against_joined_references(monkeypatch: pytest.MonkeyPatch, trainer: Trainer) -> None:
    references = ["le chi@@ en rou@@ ge dort i@@ ci", "un ch@@ at voit la mai@@ son"]
    vocabulary = Vocabulary.train(references, 100)
    found = [translation(vocabulary, line) for line in references]
    translator = Translator(trainer.model, Tokenizers(vocabulary, vocabulary), SearchConfig(), torch.device("cpu"))
    monkeypatch.setattr(translator, "translate", lambda sources: found)
    figures = measure_translation(translator, ["a", "b"], references, metric=bleu(), repeats=2)
    assert figures["bleu"] == pytest.approx(100)
    assert figures["mean_output_length"] == (8 + 7) / 2
    assert figures["output_tokens_per_second"] == pytest.approx(figures["sentences_per_second"] * (8 + 7 + 2) / 2)


def translation(vocabulary: Vocabulary, line: str) -> Translation:
    (text,) = vocabulary.decode(vocabulary.encode([line]))
    return replace(empty_translation("a"), text=text, pieces=line.split())
