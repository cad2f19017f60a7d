"""The outcome of translating a split: everything that metrics are computed from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nmt.alignment.weights import Alignment
from nmt.evaluation.correlation import Correlation, rank_correlation
from nmt.translator import Translation


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Translations of a split with references, alignments and circumstances.

    Attributes:
        translations: one for each sentence.
        references: the targets, as translations are written (segmented text is joined).
        loss: cross-entropy of the references, in nats a subword; None where only its exponential is known.
        perplexity: its exponential.
        alignment: scores against gold (`nmt.evaluation.views.alignment_metrics`).
        saliency: of the translations, where it was asked for.
        seconds: time that translating took.
        tokenize: sacrebleu's tokenizer of BLEU.
        lowercase: ignore case.
    """

    translations: Sequence[Translation]
    references: Sequence[str]
    loss: float | None = None
    perplexity: float | None = None
    alignment: Mapping[str, float | None] = field(default_factory=dict)
    saliency: Sequence[Alignment] | None = None
    seconds: float | None = None
    tokenize: str = "13a"
    lowercase: bool = False

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
        if self.saliency is None:
            return Correlation(None, None)
        return rank_correlation(self.weights, [alignment.weights for alignment in self.saliency])
