"""Validation: the loss of the references, and the quality and alignments of translations."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, replace
from typing import Any, final

import datasets
import torch

from nmt.alignment.aer import check_comparable, read_gold
from nmt.config.schema import TrainConfig
from nmt.evaluation.baseline import corpus_digest
from nmt.evaluation.metrics import bleu_tokenizer
from nmt.evaluation.outcome import translate_split
from nmt.evaluation.registry import METRICS, measure, names_at
from nmt.evaluation.views import AlignmentViews
from nmt.models.seq2seq import Seq2Seq
from nmt.text.tokenizer import Tokenizers
from nmt.text.words import plain_words
from nmt.training.console import Phase, silent_phase
from nmt.training.distributed import SINGLE_PROCESS, ProcessGroup
from nmt.training.tensorboard import Sample
from nmt.translator import Translation, Translator


@dataclass(frozen=True)
class Validation:
    """The results of a validation: metrics by name, and sentences to show."""

    metrics: dict[str, float]
    samples: list[Sample]


@final
@dataclass(eq=False)
class Validator:
    """Measures a model on the validation split; calls are collective, and every rank does a part of the work."""

    corpus: InitVar[datasets.Dataset]
    tokenizers: Tokenizers
    config: TrainConfig
    device: torch.device
    phase: Phase = silent_phase
    processes: ProcessGroup = SINGLE_PROCESS
    _: KW_ONLY
    longest: int | None = None

    def __post_init__(self, corpus: datasets.Dataset) -> None:
        config = self.config
        self.metric = config.trainer.metric
        self.search = replace(config.search, beam_size=config.trainer.validation_beam_size)
        self.scoring: dict[str, Any] = {"tokenize": bleu_tokenizer(config), "lowercase": config.lowercase}
        self.sources, self.targets = list(corpus["source"]), list(corpus["target"])
        self.sample_rows = choose_sample_rows(self.sources, config.trainer.num_samples)
        self.gold = read_gold(corpus, "validation")
        if METRICS[self.metric].needs_gold:
            check_comparable(self.metric, self.tokenizers, self.sources, self.targets)

    @property
    def digest(self) -> str:
        """Digest of what the watched metric depends on, besides the model: metric and text, for BLEU and chrF also how
        is searched and scored. Values with different digests cannot be compared.
        """
        metric = METRICS[self.metric]
        search = replace(self.search, batch_size=1, batch_unit="sentences")  # which change no translation
        text = corpus_digest(self.sources, self.targets)
        parts: list[Any] = [self.metric, text, self.gold if metric.needs_gold else None]
        parts += [search, self.scoring] if metric.sacrebleu is not None else []
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def __call__(self, model: Seq2Seq) -> Validation:
        """Return every metric of `METRICS` that is measured at validations and is available, and a few translations.

        The model is left in eval mode.
        """
        translator = self._translator(model)
        with self.phase("validating", len(self.sources) * (2 if self.gold is None else 3)) as advance:
            translator.progress = advance
            outcome = translate_split(
                translator, self.sources, self.targets, self.gold, AlignmentViews(), **self.scoring
            )
        values, _ = self.processes.on_rank_zero(measure, outcome, names_at("validation"))
        metrics = {name: value for name, value in values.items() if value is not None}
        metrics.setdefault(self.metric, math.nan)  # never the best
        return Validation(metrics, self.samples(model, [outcome.translations[row] for row in self.sample_rows]))

    def samples(self, model: Seq2Seq, translations: Sequence[Translation] | None = None) -> list[Sample]:
        """Return the translations of a few sentences, those that validations show; the model is left in eval mode."""
        translator = self._translator(model)
        sources, targets = ([side[row] for row in self.sample_rows] for side in (self.sources, self.targets))
        if translations is None:
            translations = translator.translate(sources)
        forced = translator.align(sources, targets, words="split")
        references = translator.detokenize(targets)
        return [Sample(*columns) for columns in zip(translations, references, forced, strict=True)]

    def _translator(self, model: Seq2Seq) -> Translator:
        translator = Translator(model, self.tokenizers, self.search, self.device)
        translator.map_batches, translator.longest_source = self.processes.distributed_map, self.longest
        return translator


def choose_sample_rows(sources: Sequence[str], count: int) -> list[int]:
    """Return the same few rows every time, of sentences of medium length so that a heatmap can be read."""
    lengths = [len(plain_words(source)) for source in sources]
    medium = [row for row, length in enumerate(lengths) if 6 <= length <= 18] or list(range(len(lengths)))
    return medium[:: max(1, len(medium) // max(1, count))][:count]
