"""Evaluation of a translator on a split: translate, score, and write the files of the evaluation."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets

from nmt.alignment.aer import read_gold
from nmt.alignment.links import intersection, links_of
from nmt.alignment.pharaoh import Link, Links
from nmt.alignment.retokenization import retokenize_weights
from nmt.data.tables import ProgressLog
from nmt.evaluation.baseline import Baseline, compare, corpus_digest, translator_settings
from nmt.evaluation.metrics import (
    bleu,
    bleu_by_length,
    bleu_interval,
    check_lines,
    repetition_rate,
    sentence_chrf,
)
from nmt.evaluation.outcome import Outcome, search_errors, translate_split
from nmt.evaluation.output import AlignedSentence, prepare_folder, write_files
from nmt.evaluation.records import finite
from nmt.evaluation.registry import measure, names_at
from nmt.evaluation.report import Sentence
from nmt.evaluation.views import AlignmentViews, Translating, alignment_settings
from nmt.text.vocabulary import SPECIALS, UNK
from nmt.translator import Translation


def evaluate_split(
    translator: Translating,
    corpus: datasets.Dataset,
    folder: Path | None,
    *,
    split: str,
    bleu_tokenize: str = "13a",
    lowercase: bool = False,
    num_heatmaps: int = 12,
    baseline: Baseline | None = None,
    views: AlignmentViews | None = None,
) -> dict[str, Any]:
    """Translate and score a corpus, and return the contents of metrics.json; with a folder, write it and the other
    files of `nmt.evaluation.output`.

    Alignment error rates are of the references (forced decoding), because gold links join their words; entropy,
    coverage, correlation and heatmaps are of the translations. Of the `views`, a reverse translator adds
    alignments.intersection.pharaoh, and an explainer the saliency beside every heatmap.

    Raises:
        UserError: the corpus is empty, its gold alignments are wrong, BLEU's tokenizer is not available, or `folder`
            cannot be written.
    """
    sources, targets = list(corpus["source"]), list(corpus["target"])
    check_lines(sources, targets)
    bleu(bleu_tokenize)  # raises UserError if the tokenizer is missing
    gold, views = read_gold(corpus, split), views or AlignmentViews()
    if folder is not None:
        prepare_folder(folder)
    outcome = translate_split(translator, sources, targets, gold, views, tokenize=bleu_tokenize, lowercase=lowercase)
    if translator.search.beam_size > 1:
        errors = search_errors(outcome.translations, translator.greedy(sources))
        outcome = replace(outcome, search_errors=errors)
    metrics: dict[str, Any] = finite(
        {
            **measure_all(outcome),
            "sentences": len(sources),
            "seconds": outcome.seconds,
            "cut_translations": sum(each.cut for each in outcome.translations),  # at the longest length allowed
            "translated_in_parts": sum(each.parts > 1 for each in outcome.translations),  # sources that were too long
            "baseline": compare(outcome, baseline) if baseline else None,
            "corpus": corpus_digest(sources, targets),
            "split": split,
            **translator_settings(translator),
            "bleu_tokenize": bleu_tokenize,
            "lowercase": lowercase,
            **alignment_settings(views),
        }
    )
    if folder is None:
        return metrics
    # Gold of pre-segmented text counts pieces, and so cannot be drawn on the words made of them.
    is_segmented = list(map(str.split, outcome.references)) != list(map(str.split, targets))
    write_files(folder, metrics, sentences_of(outcome, baseline, None if is_segmented else gold, views), num_heatmaps)
    return metrics


def measure_all(outcome: Outcome) -> dict[str, Any]:
    """Return every metric of an evaluation, with its signature, and what is known of them in detail."""
    scoring: dict[str, Any] = {"tokenize": outcome.tokenize, "lowercase": outcome.lowercase}
    texts = outcome.hypotheses, outcome.references
    with ProgressLog("scoring"):  # sacrebleu's TER takes seconds for a line of a hundred words that repeat
        values, signatures = measure(outcome, names_at("evaluation"))
        interval, signature = bleu_interval(*texts, **scoring)
    sources = [translation.source for translation in outcome.translations]
    return {
        **values,
        "signature": {**signatures, "bleu_ci95": signature},
        "bleu_ci95": interval,
        "bleu_by_length": bleu_by_length(sources, *texts, **scoring),
        "reference_repetition_rate": repetition_rate(outcome.references),
        **outcome.alignment,
    }


def sentences_of(
    outcome: Outcome, baseline: Baseline | None, gold: Sequence[Links] | None, views: AlignmentViews
) -> list[AlignedSentence]:
    """Return what is written, shown and drawn of each sentence, with the translation of a baseline if there is one."""
    sources = [translation.source for translation in outcome.translations]
    chrf = sentence_chrf(outcome.hypotheses, outcome.references, lowercase=outcome.lowercase)
    cells: list[Sequence[Any]] = [sources, outcome.hypotheses, outcome.references, chrf]
    if baseline is not None:
        cells.append(baseline.hypotheses)
        cells.append(sentence_chrf(baseline.hypotheses, outcome.references, lowercase=outcome.lowercase))
    rows = [Sentence(number, *row) for number, row in enumerate(zip(*cells, strict=True), start=1)]
    links = [links_of(weights, views.links) for weights in outcome.weights]
    agreed = None if views.reverse is None else agreed_links(links, outcome.translations, views.reverse, views)
    unknown = [None] * len(rows)
    columns = (rows, outcome.translations, links, outcome.saliency or unknown, agreed or unknown, gold or unknown)
    return [AlignedSentence(*sentence) for sentence in zip(*columns, strict=True)]


def agreed_links(
    links: Sequence[set[Link]], translations: Sequence[Translation], reverse: Translating, views: AlignmentViews
) -> list[set[Link]]:
    """Return the links of translations that `reverse` finds as well, where its words are of the same texts."""
    texts = [" ".join(each.pieces) if views.reverse_reads_pieces else each.line for each in translations]
    # `spaces` of segmented text are its pieces; translations have the words that these are joined to.
    words = "split" if views.reverse_reads_pieces else views.links.words
    backward = reverse.align(texts, [each.source for each in translations], words)
    agreed = []
    for forward_links, ours, theirs in zip(links, translations, backward, strict=True):
        if views.reverse_reads_pieces:
            theirs = replace(theirs, source_words=with_copies(theirs.source_words, ours))
        weights = retokenize_weights(theirs, ours.target_words, ours.source_words)
        if weights is None:  # normalization changed a text: equally many words are taken to be the same ones
            weights = theirs.weights
        is_comparable = weights.T.shape == ours.weights.shape
        agreed.append(intersection(forward_links, links_of(weights, views.links)) if is_comparable else set())
    return agreed


def with_copies(words: Sequence[str], translation: Translation) -> list[str]:
    """Return words of a translation's pieces, each `<unk>` among them replaced by the copy that the translation has."""
    written, word_of_piece = translation.words
    pairs = zip(translation.pieces, word_of_piece, strict=True)
    copies = iter([written[index] for piece, index in pairs if piece == SPECIALS[UNK]])
    return [next(copies) if word == SPECIALS[UNK] else word for word in words]
