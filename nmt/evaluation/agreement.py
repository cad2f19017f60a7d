"""How well attention agrees with gold links, with a model of the reverse direction, and with saliency."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import datasets
import torch

from nmt.alignment.links import LinkRule, alignment_error_rate, intersection
from nmt.alignment.pharaoh import Link, Links, check_links, parse_pharaoh
from nmt.config.schema import SearchConfig
from nmt.errors import UserError
from nmt.text.tokenizer import Tokenizers
from nmt.translator import Alignment, Translation

# What AER, precision and recall are called in metrics.json.
SCORES = {"attention": ("aer", "alignment_precision", "alignment_recall")} | {
    view: (f"{view}_aer", f"{view}_precision", f"{view}_recall") for view in ("reverse", "intersection", "saliency")
}


@runtime_checkable
class Translating(Protocol):
    """What is asked of a translator; `nmt.translator.Translator` has it."""

    search: SearchConfig
    precision: str
    device: torch.device
    checkpoint: Path | None
    ensemble: list[Path]
    step: int | None

    def translate(self, sentences: Sequence[str]) -> list[Translation]: ...

    def align(self, sources: Sequence[str], targets: Sequence[str]) -> list[Alignment]: ...

    def perplexity(self, sources: Sequence[str], targets: Sequence[str]) -> float: ...

    def plain(self, lines: Sequence[str]) -> list[str]: ...


@runtime_checkable
class Explaining(Protocol):
    """What is asked of an explainer; `nmt.evaluation.saliency.Explainer` has it."""

    def pairs(self, sources: Sequence[str], targets: Sequence[str]) -> list[Alignment]: ...

    def translations(self, translations: Sequence[Translation]) -> list[Alignment]: ...


@dataclass(frozen=True, kw_only=True)
class Views:
    """The ways in which a sentence pair is looked at.

    Attributes:
        rule: how weights become links, whatever the view.
        reverse: a translator of the other direction, whose links are intersected with the attention's.
        reverse_run: its name.
        explainer: gives the saliency.
    """

    rule: LinkRule = field(default_factory=LinkRule)
    reverse: Translating | None = None
    reverse_run: str | None = None
    explainer: Explaining | None = None


def read_gold(corpus: datasets.Dataset, split: str) -> list[Links] | None:
    """Return the gold links of every sentence, or None where the corpus has none.

    Raises:
        UserError: a link cannot be read or points outside its sentences.
    """
    if "alignment" not in corpus.column_names:
        return None
    gold = []
    for n, row in enumerate(corpus, start=1):
        where = f"gold alignment of {split} line {n}"
        links = parse_pharaoh(row["alignment"] or "", where)
        check_links(links, len(row["source"].split()), len(row["target"].split()), where)
        gold.append(links)
    return gold


def alignment_metrics(
    translator: Translating,
    sources: Sequence[str],
    references: Sequence[str],
    gold: Sequence[Links] | None,
    views: Views,
) -> dict[str, Any]:
    """Score the links of attention between sources and references against gold, and those of the further views.

    Gold counts what stands between spaces, in text that is segmented already its pieces; a pair whose words the
    subword model counts otherwise is left out. `aer_sentences` of the `gold_sentences` were scored.
    """
    found: dict[str, Any] = {name: None for names in SCORES.values() for name in names}
    found |= {"aer_sentences": 0, "gold_sentences": 0 if gold is None else len(gold)}
    if gold is None:
        return found
    forward = word_links(translator.align(sources, references), sources, references, views.rule)
    found |= gold_scores(forward, gold) | {"aer_sentences": sum(links is not None for links in forward)}
    if views.reverse is not None:
        backward = word_links(views.reverse.align(references, sources), references, sources, views.rule)
        turned = [None if links is None else {(i, j) for j, i in links} for links in backward]
        found |= gold_scores(turned, gold, "reverse")
        found |= gold_scores(intersections(forward, backward), gold, "intersection")
    if views.explainer is not None:
        saliency = word_links(views.explainer.pairs(sources, references), sources, references, views.rule)
        found |= gold_scores(saliency, gold, "saliency")
    return found


def word_links(
    aligned: Sequence[Alignment], sources: Sequence[str], targets: Sequence[str], rule: LinkRule
) -> list[set[Link] | None]:
    """Return the links of each pair, None where its words are not those between spaces."""
    return [
        rule.links(each.weights)
        if (len(each.source_words), len(each.target_words)) == (len(source.split()), len(target.split()))
        else None
        for each, source, target in zip(aligned, sources, targets, strict=True)
    ]


def check_countable(tokenizers: Tokenizers, sources: Sequence[str], targets: Sequence[str]) -> None:
    """Refuse to watch an error rate that no pair of a corpus can have.

    Raises:
        UserError: in every pair the subword models count other words than spaces do.
    """
    for source, target in zip(sources, targets, strict=True):
        sides = ((tokenizers.source, source), (tokenizers.target, target))
        if all(len(side.parts(side.encode([line])[0], line)[0]) == len(line.split()) for side, line in sides):
            return
    raise UserError(
        f"trainer.metric=aer cannot be measured in any of {len(sources)} validation pairs: the subword models part "
        "their lines into other words than spaces do; choose another metric, or other subword models"
    )


def intersections(forward: Sequence[set[Link] | None], backward: Sequence[set[Link] | None]) -> list[set[Link] | None]:
    """Return the links that both directions agree on; None where either counts other words."""
    return [
        None if ours is None or theirs is None else intersection(ours, theirs)
        for ours, theirs in zip(forward, backward, strict=True)
    ]


def gold_scores(
    links: Sequence[set[Link] | None], gold: Sequence[Links], view: str = "attention"
) -> dict[str, float | None]:
    """Return AER, precision and recall of the pairs that have links, under the view's names; None where no pair has."""
    kept = [(found, truth) for found, truth in zip(links, gold, strict=True) if found is not None]
    scores = alignment_error_rate([found for found, _ in kept], [truth for _, truth in kept])
    return dict(zip(SCORES[view], scores if kept else (None, None, None), strict=True))


def settings_of(views: Views) -> Mapping[str, Any]:
    """Return what an alignment score must travel with."""
    uses_threshold = views.rule.method == "threshold"
    return {
        "alignment_method": views.rule.method,
        "alignment_threshold": views.rule.threshold if uses_threshold else None,
        "reverse": views.reverse_run,
    }
