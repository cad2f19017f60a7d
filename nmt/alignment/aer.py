"""Alignment error rate: links against gold links, and the reading of gold."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import datasets

from nmt.alignment.pharaoh import Link, Links, check_links, parse_pharaoh
from nmt.errors import UserError
from nmt.text.tokenizer import Tokenizers


class AlignmentScores(NamedTuple):
    """Agreement of links with gold, each score from 0 to 1."""

    aer: float
    precision: float
    recall: float


def alignment_error_rate(hypotheses: Sequence[Collection[Link]], gold: Sequence[Links]) -> AlignmentScores:
    """Score the links A of a corpus against sure links S and possible links P (Och & Ney, 2003); raise ValueError
    if the two sequences differ in length.

    AER = 1 - (|A & S| + |A & P|) / (|A| + |S|), precision = |A & P| / |A|, recall = |A & S| / |S|.
    Where a denominator is 0 there is no error to make: AER is 0, precision and recall are 1.
    """
    in_sure = in_possible = num_links = num_sure = 0
    for links, truth in zip(hypotheses, gold, strict=True):
        predicted = set(links)
        in_sure += len(predicted & truth.sure)
        in_possible += len(predicted & (truth.possible | truth.sure))
        num_links += len(predicted)
        num_sure += len(truth.sure)
    total = num_links + num_sure
    return AlignmentScores(
        aer=1 - (in_sure + in_possible) / total if total else 0.0,
        precision=in_possible / num_links if num_links else 1.0,
        recall=in_sure / num_sure if num_sure else 1.0,
    )


def read_gold(corpus: datasets.Dataset, split: str) -> list[Links] | None:
    """Return the gold links of every sentence pair, or None if the corpus has no column `alignment`; raise UserError
    where a link cannot be read or points outside its sentences.
    """
    if "alignment" not in corpus.column_names:
        return None
    gold = []
    for number, row in enumerate(corpus, start=1):
        place = f"gold alignment of {split} line {number}"
        links = parse_pharaoh(row["alignment"] or "", place)
        check_links(links, len(row["source"].split()), len(row["target"].split()), place)
        gold.append(links)
    return gold


def check_comparable(metric: str, tokenizers: Tokenizers, sources: Sequence[str], targets: Sequence[str]) -> None:
    """Raise UserError if in no pair the tokenizers' words are those that gold links count: the parts between spaces."""
    for source, target in zip(sources, targets, strict=True):
        sides = ((tokenizers.source, source), (tokenizers.target, target))
        if all(len(side.parts(side.encode([line])[0], line)[0]) == len(line.split()) for side, line in sides):
            return
    raise UserError(
        f"trainer.metric={metric} cannot be measured in any of {len(sources)} validation pairs: the subword models "
        "split their lines into different words than the spaces do; choose another metric, or other subword models"
    )
