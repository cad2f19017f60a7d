"""Views of sentence pairs (attention, reverse direction, their intersection, saliency), each scored against gold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from nmt.alignment.aer import alignment_error_rate
from nmt.alignment.links import word_links
from nmt.alignment.pharaoh import Link, Links
from nmt.alignment.weights import Alignment
from nmt.config.schema import LinksConfig, SearchConfig
from nmt.translator import Translation

# The keys of AER, precision and recall in metrics.json.
SCORES = {"attention": ("aer", "alignment_precision", "alignment_recall")} | {
    view: (f"{view}_aer", f"{view}_precision", f"{view}_recall") for view in ("reverse", "intersection", "saliency")
}


@runtime_checkable
class Translating(Protocol):
    """The interface of a translator that evaluation needs: `nmt.translator.Translator` has it, and tests' own."""

    search: SearchConfig
    precision: str
    device: torch.device
    checkpoint: Path | None
    ensemble: list[Path]
    step: int | None
    replaces_unknown: bool  # `search.replace_unknown`, where words may be unknown

    def translate(self, sentences: Sequence[str]) -> list[Translation]: ...

    def greedy(self, sentences: Sequence[str]) -> list[Translation]: ...

    def align(self, sources: Sequence[str], targets: Sequence[str], words: str = ...) -> Sequence[Alignment]: ...

    def cross_entropy(self, sources: Sequence[str], targets: Sequence[str]) -> float: ...

    def detokenize(self, lines: Sequence[str]) -> list[str]: ...


@runtime_checkable
class Explaining(Protocol):
    """The interface of an explainer that evaluation needs: `saliency.Explainer` has it, and tests' own."""

    def pairs(self, sources: Sequence[str], targets: Sequence[str]) -> list[Alignment]: ...

    def translations(self, translations: Sequence[Translation]) -> Sequence[Alignment | None]: ...


@dataclass(frozen=True, kw_only=True)
class AlignmentViews:
    """How sentence pairs are aligned, beside the attention."""

    links: LinksConfig = field(default_factory=LinksConfig)  # how weights become links, in every view
    reverse: Translating | None = None  # translates the other way; its links are intersected with the attention's
    reverse_run: str | None = None  # its name
    reverse_reads_pieces: bool = False  # instead of words: both runs' text is segmented already
    explainer: Explaining | None = None  # computes the saliency


def alignment_metrics(
    translator: Translating,
    sources: Sequence[str],
    references: Sequence[str],
    gold: Sequence[Links] | None,
    views: AlignmentViews,
) -> dict[str, Any]:
    """Score the links of attention between sources and references against gold, and those of the further views.

    Gold counts the parts between spaces, in pre-segmented text its pieces; a pair whose words the subword model counts
    otherwise is left out. `aer_sentences` of the `gold_sentences` were scored. A score that is not available is None.
    """
    scores: dict[str, Any] = {key: None for keys in SCORES.values() for key in keys}
    scores |= {"aer_sentences": 0, "gold_sentences": 0 if gold is None else len(gold)}
    if gold is None:
        return scores
    forward = word_links(translator.align(sources, references), sources, references, views.links)
    scores |= gold_scores(forward, gold) | {"aer_sentences": sum(links is not None for links in forward)}
    if views.reverse is not None:
        reverse = word_links(views.reverse.align(references, sources), references, sources, views.links)
        transposed = [None if links is None else {(i, j) for j, i in links} for links in reverse]
        scores |= gold_scores(transposed, gold, "reverse")
        both = [None if a is None or b is None else a & b for a, b in zip(forward, transposed, strict=True)]
        scores |= gold_scores(both, gold, "intersection")
    if views.explainer is not None:
        saliency = word_links(views.explainer.pairs(sources, references), sources, references, views.links)
        scores |= gold_scores(saliency, gold, "saliency")
    return scores


def gold_scores(
    links: Sequence[set[Link] | None], gold: Sequence[Links], view: str = "attention"
) -> dict[str, float | None]:
    """Return AER, precision and recall of the pairs that have links, under the view's keys; None if no pair has."""
    pairs = [(hypothesis, truth) for hypothesis, truth in zip(links, gold, strict=True) if hypothesis is not None]
    if not pairs:
        return dict.fromkeys(SCORES[view])
    scores = alignment_error_rate([hypothesis for hypothesis, _ in pairs], [truth for _, truth in pairs])
    return dict(zip(SCORES[view], scores, strict=True))


def alignment_settings(views: AlignmentViews) -> Mapping[str, Any]:
    """Return the settings of the alignment scores, for metrics.json."""
    return {
        "alignment_method": views.links.method,
        "alignment_threshold": views.links.threshold if views.links.method == "threshold" else None,
        "alignment_words": views.links.words,
        "reverse": views.reverse_run,
    }
