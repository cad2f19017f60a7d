"""Validation: the loss of the references, and the quality and alignments of translations."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import torch

from nmt.alignment.aer import check_comparable, read_gold
from nmt.config.schema import TrainConfig
from nmt.data.batch import Batch, fixed_batches
from nmt.data.tables import EncodedCorpus
from nmt.evaluation.metrics import bleu_tokenizer
from nmt.evaluation.outcome import Outcome
from nmt.evaluation.registry import METRICS, measure, names_at
from nmt.evaluation.views import Views, alignment_metrics
from nmt.models.seq2seq import Seq2Seq
from nmt.text.tokenizer import Tokenizers
from nmt.text.words import plain_words
from nmt.training.board import Sample
from nmt.training.console import Advance, Phase, unreported
from nmt.training.distributed import SINGLE_PROCESS, ProcessGroup
from nmt.translator import Translation, Translator


@dataclass(frozen=True)
class Validation:
    """The results of a validation: metrics by name, and sentences to show."""

    metrics: dict[str, float]
    samples: list[Sample]


@final
class Validator:
    """Measures a model on the validation split; calls are collective, and every rank does its share."""

    def __init__(
        self,
        encoded: EncodedCorpus,
        tokenizers: Tokenizers,
        config: TrainConfig,
        device: torch.device,
        phase: Phase = unreported,
        processes: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        self.encoded = encoded
        self.tokenizers = tokenizers
        self.batch_size = config.batch.size if config.batch.unit == "tokens" else 4_096
        self.search = replace(config.search, beam_size=config.trainer.validation_beam_size)
        self.tokenize, self.lowercase = bleu_tokenizer(config), config.lowercase
        self.device = device
        self.phase = phase
        self.processes = processes
        self.metric = config.trainer.metric
        self.sources, self.targets = list(encoded.corpus["source"]), list(encoded.corpus["target"])
        self.sampled = sample_rows(self.sources, config.trainer.num_samples)
        self.gold = read_gold(encoded.corpus, "validation")
        if METRICS[self.metric].needs_gold:
            check_comparable(self.metric, tokenizers, self.sources, self.targets)

    @torch.inference_mode()
    def __call__(self, model: Seq2Seq) -> Validation:
        """Return every metric of `METRICS` that is measured at validations and is available, and a few translations.

        The model is left in eval mode.
        """
        with self.phase("validating", len(self.sources) * (2 if self.gold is None else 3)) as advance:
            outcome = self._outcome(model, advance)
        values, _ = self.processes.on_rank_zero(measure)(outcome, names_at("validation"))
        metrics = {name: value for name, value in values.items() if value is not None}
        metrics.setdefault(self.metric, math.nan)  # never the best
        return Validation(metrics, self._samples(model, [outcome.translations[row] for row in self.sampled]))

    @torch.inference_mode()
    def samples(self, model: Seq2Seq) -> list[Sample]:
        """Return the translations of a few sentences, those that validations show; the model is left in eval mode."""
        model.eval()
        return self._samples(model, self._translator(model).translate([self.sources[row] for row in self.sampled]))

    def _samples(self, model: Seq2Seq, translations: Sequence[Translation]) -> list[Sample]:
        translator = self._translator(model)
        sources, targets = ([side[row] for row in self.sampled] for side in (self.sources, self.targets))
        forced = translator.align(sources, targets, words="split")
        return [Sample(*each) for each in zip(translations, translator.plain(targets), forced, strict=True)]

    def _translator(self, model: Seq2Seq) -> Translator:
        translator = Translator(model, self.tokenizers, self.search, self.device)
        translator.spread = self.processes.spread
        return translator

    def _outcome(self, model: Seq2Seq, advance: Advance) -> Outcome:
        """Read every sentence for its loss, to translate it, and where there is gold to align it."""
        model.eval()
        loss = self._loss(model, advance)
        translator = self._translator(model)
        translator.progress = advance
        return Outcome(
            translations=translator.translate(self.sources),
            references=translator.plain(self.targets),
            loss=loss,
            perplexity=math.exp(min(loss, 100.0)),
            alignment=alignment_metrics(translator, self.sources, self.targets, self.gold, Views()),
            tokenize=self.tokenize,
            lowercase=self.lowercase,
        )

    def _loss(self, model: Seq2Seq, advance: Advance) -> float:
        """Mean cross-entropy of a target token, in nats, without label smoothing."""

        def read(batch: Batch) -> float:
            return model.log_probs(batch.to(self.device)).sum().item()

        batches = list(fixed_batches(self.encoded.source, self.encoded.target, self.batch_size))
        total, tokens = 0.0, 0
        for batch, log_prob in zip(batches, self.processes.spread(read, batches), strict=True):
            total -= log_prob
            tokens += batch.num_target_tokens
            advance(len(batch))
        return total / tokens


def sample_rows(sources: Sequence[str], count: int) -> list[int]:
    """Return the same few sentences every time, of medium length so that a heatmap can be read."""
    words = [len(plain_words(source)) for source in sources]
    medium = [row for row, count in enumerate(words) if 6 <= count <= 18] or list(range(len(words)))
    return medium[:: max(1, len(medium) // max(1, count))][:count]
