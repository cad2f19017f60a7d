"""The outcome of translating a split: everything that metrics are computed from."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nmt.alignment.pharaoh import Links
from nmt.alignment.weights import Alignment
from nmt.evaluation.correlation import Correlation, rank_correlation
from nmt.evaluation.views import AlignmentViews, Translating, alignment_metrics
from nmt.translator import Translation, exponential


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Translations of a split with references, alignments and circumstances."""

    translations: Sequence[Translation]
    references: Sequence[str]  # the targets, as translations are written (segmented text is joined)
    loss: float | None = None  # cross-entropy of the references, in nats per subword
    alignment: Mapping[str, float | None] = field(default_factory=dict)  # scores of `views.alignment_metrics`
    saliency: Sequence[Alignment | None] | None = None  # of the translations, where it was asked for and is known
    search_errors: int | None = None  # of `search_errors`; None if there is no beam
    seconds: float | None = None  # time that translating took
    tokenize: str = "13a"  # sacrebleu's tokenizer of BLEU
    lowercase: bool = False  # ignore case

    @property
    def perplexity(self) -> float | None:
        """The exponential of the loss."""
        return None if self.loss is None else exponential(self.loss)

    @cached_property
    def hypotheses(self) -> list[str]:
        """The text of each translation, on one line."""
        return [translation.line for translation in self.translations]

    @cached_property
    def weights(self) -> list[Any]:
        """The attention of each translation, [target words, source words]."""
        return [translation.weights for translation in self.translations]

    @cached_property
    def saliency_correlation(self) -> Correlation:
        """Rank correlation of attention and saliency over source words."""
        pairs = zip(self.weights, self.saliency or [None] * len(self.weights), strict=True)
        known = [(attention, saliency.weights) for attention, saliency in pairs if saliency is not None]
        return rank_correlation([attention for attention, _ in known], [saliency for _, saliency in known])


def translate_split(
    translator: Translating,
    sources: Sequence[str],
    targets: Sequence[str],
    gold: Sequence[Links] | None,
    views: AlignmentViews,
    *,
    tokenize: str,
    lowercase: bool,
) -> Outcome:
    """Translate the sources of a split, score their targets, and align the two."""
    started = time.perf_counter()
    translations = translator.translate(sources)
    seconds = time.perf_counter() - started
    return Outcome(
        translations=translations,
        references=translator.detokenize(targets),
        loss=translator.cross_entropy(sources, targets),
        alignment=alignment_metrics(translator, sources, targets, gold, views),
        saliency=views.explainer.translations(translations) if views.explainer else None,
        seconds=seconds,
        tokenize=tokenize,
        lowercase=lowercase,
    )


def search_errors(translations: Sequence[Translation], greedy: Sequence[Translation]) -> int:
    """Return the number of sentences of which greedy search found a translation with a better score.

    Scores of the same translation, and scores that differ by less than 1e-4, differ by rounding.
    """
    pairs = zip(translations, greedy, strict=True)
    return sum(first.pieces != second.pieces and second.score > first.score + 1e-4 for first, second in pairs)
