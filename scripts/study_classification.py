"""Which words decide? A sentence to a label, by attention, by the last state and by the mean of the states.

    python scripts/study_classification.py [--quick] [--task number|negation] [--poolings NAME ...]
    python scripts/study_classification.py --data FILE|hub:NAME --text COLUMN --label COLUMN [--test FILE|hub:NAME]

A bidirectional recurrent encoder reads a sentence, a pooling makes one vector of its states, and a linear layer the
class. The poolings: `last`, the last state of each direction; `mean`; and attention with a learned query (Yang et al.,
2016), SCORE-NORMALIZER-WINDOW. All else is the same, and so is the number of updates.

Built-in data: who acts in the main clause, one or several (`number`), or is it negated (`negation`)? One word decides,
and up to 12 other clauses, before and after, mislead. Real data: a file (csv, tsv, json, jsonl, parquet) or a data set
of the hub, with the names of its columns; of a file without --test every fifth row is held out.

Columns: accuracy (95% interval of Wilson), macro-F1 (of the bootstrap), accuracy by words of the sentence; the mean
weight of the word that decides, and how often all others have less; the same of gradient saliency; the rank correlation
of weights and saliency (Jain & Wallace, 2019). Beside the table, `figure.png` draws accuracy by length, `words.png` the
weights over the words of the clearest and the wrong sentences. Minutes; --quick takes fewer and shorter sentences.
"""

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from nmt.cli import user_errors
from nmt.data.grammar.chooser import Chooser
from nmt.errors import UserError, unknown
from nmt.text.words import text_words
from studies.classifier import MAX_WORDS, Classifier, build_pooling, predict, train
from studies.deciding_words import TASKS, DecidedSentences
from studies.labeled_text import Data, add_data, check_data, read_data
from studies.options import positive, seed, use_threads
from studies.predictions import LENGTHS, LabeledSentence, Prediction, clearest_and_wrong, measure
from studies.shaded_words import ShadedSentence, draw_sentences
from studies.study import add_output, log, make_output_folder
from studies.tables import report
from studies.training import WordVocabulary

POOLINGS = ("last", "mean", "additive-softmax-global", "additive-entmax15-global", "additive-sparsemax-global")
WORDS = "words.png"
SHOWN = 3  # sentences in the picture of each sort


class ClassificationSetting(NamedTuple):
    """The size of the built-in data, and of the training."""

    sentences: int  # to train on
    test_sentences: int
    clauses: int  # that mislead, in a sentence at most
    epochs: int


FULL, QUICK = ClassificationSetting(5_000, 2_000, 12, 5), ClassificationSetting(2_000, 500, 5, 8)


def main() -> None:
    """Train a classifier with each pooling, and write the table and the figures."""
    options = build_parser().parse_args()
    with user_errors():
        use_threads(options.threads)
        check_data(options)
        poolings = list(dict.fromkeys(options.poolings))  # each once
        for name in poolings:
            build_pooling(name)
        setting = QUICK if options.quick else FULL
        data = real_data(options) if options.data else built_in(options, setting)
        log(f"{len(data.train):,} sentences to train on, {len(data.test):,} to test, {len(data.classes)} classes")
        folder = make_output_folder(options, "classification")
        predictions, rows = {}, []
        for name in poolings:
            predictions[name], cost = train_and_predict(name, data, options.epochs or setting.epochs, options.seed)
            rows.append({"pooling": name, **measure(predictions[name], len(data.classes)), **cost})
        report(rows, partial(draw, rows), folder, title="classification", summary=[summarize(row) for row in rows])
        if attentional_rows := [row for row in rows if row["correlation"] is not None]:
            best = max(attentional_rows, key=lambda row: (row["accuracy"], row["weight"] or 0.0))["pooling"]
            draw_sentences(shaded_sentences(best, predictions[best], data.classes), folder / WORDS)
            print(f"weights over words: {folder / WORDS}")
        else:
            (folder / WORDS).unlink(missing_ok=True)  # of an earlier call, not of the models in the table


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="fewer and shorter sentences, in less than 3 minutes")
    add("--task", metavar="NAME", help=f"of the built-in data: {', '.join(TASKS)} (default: number)")
    add("--poolings", nargs="+", default=list(POOLINGS), metavar="NAME", help="last, mean, SCORE-NORMALIZER-WINDOW")
    add("--sentences", type=positive, metavar="N", help=f"of the built-in data (default: {FULL.sentences:,})")
    add("--clauses", type=positive, metavar="N", help=f"that mislead, in these at most (default: {FULL.clauses})")
    add("--epochs", type=positive, metavar="N", help=f"default: {FULL.epochs}, with --quick {QUICK.epochs}")
    add_data(parser, "text")
    add("--text", default="text", metavar="COLUMN", help="of the texts (default: text)")
    add("--label", default="label", metavar="COLUMN", help="of the labels (default: label)")
    add("--seed", type=seed, default=1, help="of sentences and models (default: 1)")
    add_output(parser)
    return parser


def built_in(options: argparse.Namespace, setting: ClassificationSetting) -> Data[LabeledSentence]:
    """Draw sentences, of which none of the test occurs in training; raise UserError if there is no such task."""
    task = options.task or "number"
    if task not in TASKS:
        raise unknown("task", task, TASKS)
    splits, training_texts = [], set[str]()
    for split, count in (("train", options.sentences or setting.sentences), ("test", setting.test_sentences)):
        log(f"drawing {count:,} sentences")
        rng, max_clauses = Chooser(f"{options.seed} {split}"), options.clauses or setting.clauses
        drawn = iter(DecidedSentences(task, rng, max_clauses))
        chosen = list(islice((each for each in drawn if each.text not in training_texts), count))
        splits.append([LabeledSentence(text_words(each.text), each.label, each.position) for each in chosen])
        training_texts = {each.text for each in chosen}
    return Data(splits[0], splits[1], TASKS[task])


def real_data(options: argparse.Namespace) -> Data[LabeledSentence]:
    """Read labeled text, as words; raise UserError as `read_data`, and for an option of the built-in data."""
    for name in ("task", "sentences", "clauses"):
        if getattr(options, name) is not None:
            raise UserError(f"--{name} is of the built-in data: leave it out, or --data")
    return read_data(
        options,
        lambda source: ([options.text], options.label),
        lambda texts, label: LabeledSentence(text_words(texts[0]) or [""], label),
    )


def train_and_predict(
    name: str, data: Data[LabeledSentence], epochs: int, seed: int
) -> tuple[list[Prediction], dict[str, Any]]:
    """Train a classifier; return its predictions of the test sentences and the cost of training."""
    torch.manual_seed(seed)
    vocabulary = WordVocabulary((each.words for each in data.train), max_words=MAX_WORDS)
    model = Classifier(vocabulary, len(data.classes), name)
    cost = train(model, data.train, epochs, lambda text: log(f"{name}: {text}"))
    return predict(model, data.test), cost


def summarize(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the printed row of a pooling: an interval in one column, and without less important columns."""
    left_out = ("_low", "_high", "_first", "epochs")
    summary = {key: value for key, value in row.items() if not key.endswith(left_out)}
    for name in ("accuracy", "macro_f1"):
        summary[name] = f"{row[name]:.3f} [{row[f'{name}_low']:.3f}, {row[f'{name}_high']:.3f}]"
    return summary


def shaded_sentences(name: str, predictions: Sequence[Prediction], classes: Sequence[str]) -> list[ShadedSentence]:
    """Return the clearest and the wrong sentences of an attention, with their weights and saliency."""
    return [
        ShadedSentence(
            f"{classes[each.example.label]}, read as {classes[each.predicted]} (p = {each.probabilities.max():.4f})",
            each.example.words,
            {name: each.weights, "saliency": each.saliency},
            each.example.position,
        )
        for each in clearest_and_wrong(predictions, len(classes), SHOWN)
        if each.weights is not None
    ]


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw accuracy by length, a line for each pooling, and the weight and saliency of the deciding word."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for row in rows:
        left.plot(
            [name.replace("_", " ") for name in LENGTHS],
            [row[name] for name in LENGTHS],
            marker="o",
            label=row["pooling"],
        )
    left.set(xlabel="words", ylabel="accuracy", ylim=(0, 1.02))
    left.legend(fontsize=7)
    for shift, name in ((-0.2, "weight"), (0.2, "saliency")):
        right.barh([number + shift for number in range(len(rows))], [row[name] or 0 for row in rows], 0.38, label=name)
    right.set_yticks(range(len(rows)), [row["pooling"] for row in rows], fontsize=7)
    right.set(xlabel="share of the word that decides", xlim=(0, 1))
    right.invert_yaxis()
    right.legend(fontsize=7)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
