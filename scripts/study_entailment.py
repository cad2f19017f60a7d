"""Does one sentence entail another? Attend, compare, aggregate: decomposable attention  (Parikh et al., 2016).

    python scripts/study_entailment.py [--quick] [--score NAME] [--normalizer NAME]
    python scripts/study_entailment.py --data FILE|hub:NAME [--test FILE|hub:NAME] [--text PREMISE HYPOTHESIS]

Attention aligns each word of the premise with the words of the hypothesis, and the reverse; each word is compared with
what it is aligned with; the sums of the comparisons decide. Two baselines have the same layers and as many updates:
`hypothesis_only` is given empty premises (Gururangan et al., 2018), and `mean_vectors`, without attention, compares the
means of the word vectors of both sentences. `untrained` is the model before its first update.

Built-in data: entailment, contradiction or neither, from the grammar, with gold links; each hypothesis has a premise of
every class (scripts/studies/entailment_pairs.py says how). Real data: a file (csv, tsv, json, jsonl, parquet), such as
those of SNLI (Bowman et al., 2015), or a data set of the hub; of a file without --test every fifth row is held out.

Columns: accuracy, and accuracy by class; the alignment error rate of the links that alpha gives, which aligns the words
of the hypothesis, that of beta, for the words of the premise, and that of the links that both give; `recall_different`,
the share of gold links between different words (dog, animal; small, big) that alpha gives. `confusion.csv` has the
predicted classes; `figure.png` draws alpha and beta of a pair of each class. Takes minutes.
"""

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from nmt.alignment.pharaoh import Links
from nmt.attention.attention import Attention
from nmt.attention.build import build_attention
from nmt.attention.settings import AttentionSettings
from nmt.cli import user_errors
from nmt.config.schema import AttentionConfig
from nmt.models.hub import SCHEME
from nmt.text.words import text_words
from studies.decomposable import NULL, DecomposableAttention, MeanVector, WordVectors
from studies.entailment_pairs import CLASSES, generate
from studies.intervals import confusion
from studies.labeled_text import Data, add_data, check_data, read_data
from studies.options import positive, seed, use_threads
from studies.pair_classes import MEASURES, LabeledPair, PairPrediction, measure_alignment, predict, train, words_of
from studies.study import add_output, log, make_output_folder
from studies.tables import print_table, report, write_table
from studies.training import WordVocabulary

MODELS = ("attention", "untrained", "hypothesis_only", "mean_vectors")
ALIGNED = MODELS[:2]
SIZE, DROPOUT = 100, 0.0  # of all layers
SNLI, ON_HUB = ("sentence1", "sentence2", "gold_label"), ("premise", "hypothesis", "label")  # columns
TYPICAL_LENGTH = 9  # words of a sentence in the figure, about
NULL_LABEL = "∅"


class EntailmentSetting(NamedTuple):
    """Hypotheses of the built-in data to train on and to test, each with three premises, and epochs."""

    train: int
    test: int
    epochs: int


FULL, QUICK = EntailmentSetting(10_000, 1_000, 7), EntailmentSetting(5_000, 500, 6)


def main() -> None:
    """Train decomposable attention and the baselines, and write the tables and the figure."""
    options = build_parser().parse_args()
    with user_errors():
        use_threads(options.threads)
        check_data(options)
        build_attention_of(options)  # a wrong name is reported before the work
        setting = QUICK if options.quick else FULL
        data = real_data(options) if options.data else built_in(setting, options.seed)
        log(f"{len(data.train):,} pairs to train on, {len(data.test):,} to test, {len(data.classes)} classes")
        folder = make_output_folder(options, "entailment")
        predictions, rows, confusion_rows = {}, [], []
        for name in MODELS:
            epochs = 0 if name == "untrained" else options.epochs or setting.epochs
            predictions[name], cost = train_and_predict(name, data, options, epochs)
            gold, predicted = ([each.label for each in side] for side in (data.test, predictions[name]))
            counts = confusion(gold, predicted, len(data.classes))
            rows.append({"model": name, **measure(name, data, predictions[name], counts), **cost})
            confusion_rows += [{"model": name, **row} for row in rows_of_confusion(counts, data.classes)]
        report(rows, partial(draw, data, predictions["attention"]), folder, title="entailment")
        write_table(confusion_rows, folder / "confusion.csv")
        print_table(confusion_rows, "predicted classes")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="fewer pairs, in less than 3 minutes")
    add("--score", default="scaled_dot", metavar="NAME", help="of attention (default: scaled_dot; in the paper dot)")
    add("--normalizer", default="softmax", metavar="NAME", help="of attention (default: softmax)")
    add("--epochs", type=positive, metavar="N", help=f"default: {FULL.epochs}, with --quick {QUICK.epochs}")
    add_data(parser, "pairs")
    columns = ("PREMISE", "HYPOTHESIS")
    defaults = [f"{' '.join(names[:2])}, label {names[2]}" for names in (SNLI, ON_HUB)]
    add("--text", nargs=2, metavar=columns, help=f"columns (default: {defaults[0]}; of the hub {defaults[1]})")
    add("--label", metavar="COLUMN", help="of the classes")
    add("--seed", type=seed, default=1, help="of pairs and models (default: 1)")
    add_output(parser)
    return parser


def built_in(setting: EntailmentSetting, seed: int) -> Data[LabeledPair]:
    """Make the built-in data; no hypothesis is in both parts."""
    log(f"making {3 * (setting.train + setting.test):,} pairs")
    train, test = (
        [LabeledPair(each.premise, each.hypothesis, CLASSES.index(each.label), each.gold) for each in part]
        for part in generate((setting.train, setting.test), seed)
    )
    return Data(train, test, CLASSES)


def real_data(options: argparse.Namespace) -> Data[LabeledPair]:
    """Read labeled pairs; raise UserError as `read_data`."""

    def columns(source: str) -> tuple[Sequence[str], str]:
        *texts, label = ON_HUB if source.startswith(SCHEME) else SNLI
        return options.text or texts, options.label or label

    return read_data(options, columns, lambda pair, label: LabeledPair(pair[0], pair[1], label))


def build_attention_of(options: argparse.Namespace) -> Attention:
    """Return attention to all words of the other sentence; raise UserError for an unknown score or normalizer."""
    settings = AttentionSettings.from_config(AttentionConfig(), query_size=SIZE, state_size=SIZE, size=SIZE)
    attention = build_attention(options.score, options.normalizer, "global", settings)
    assert isinstance(attention, Attention), "one head"
    return attention


def train_and_predict(
    name: str, data: Data[LabeledPair], options: argparse.Namespace, epochs: int
) -> tuple[list[PairPrediction], dict[str, Any]]:
    """Train a model; return its predictions for the test pairs, and the cost of training."""
    torch.manual_seed(options.seed)
    sentences = (text_words(text) for each in data.train for text in (each.premise, each.hypothesis))
    vocabulary = WordVocabulary(sentences, [NULL])
    words = WordVectors(len(vocabulary), SIZE)
    vectors = MeanVector(words) if name == "mean_vectors" else words
    model = DecomposableAttention(vectors, build_attention_of(options), SIZE, SIZE, len(data.classes), DROPOUT)
    parts = [data.train, data.test]
    if name == "hypothesis_only":
        parts = [[each._replace(premise="") for each in part] for part in parts]
    cost = train(model, vocabulary, parts[0], epochs, lambda text: log(f"{name}: {text}"))
    return predict(model, vocabulary, parts[1]), cost


def measure(
    name: str, data: Data[LabeledPair], predictions: Sequence[PairPrediction], counts: np.ndarray
) -> dict[str, float | None]:
    """Return accuracy, accuracy by class (None if the test has none of it), and errors of alignment."""
    correct_and_total = zip(data.classes, counts.diagonal(), counts.sum(axis=1), strict=True)
    by_class = {f"accuracy_{label}": correct / total if total else None for label, correct, total in correct_and_total}
    alignment = measure_alignment(data.test, predictions) if name in ALIGNED else dict.fromkeys(MEASURES)
    return {"accuracy": counts.trace() / counts.sum(), **by_class, **alignment}


def rows_of_confusion(counts: np.ndarray, classes: Sequence[str]) -> Iterator[dict[str, str | int]]:
    """Yield for each class the numbers of its pairs by predicted class."""
    for label, row in zip(classes, counts.tolist(), strict=True):
        yield {"class": label, **{f"as_{predicted}": count for predicted, count in zip(classes, row, strict=True)}}


def draw(data: Data[LabeledPair], predictions: Sequence[PairPrediction], path: Path) -> None:
    """Draw alpha and beta of a short pair of each class, correctly classified if there is one; gold is outlined."""
    from PIL import Image

    from nmt.evaluation.filmstrips import stack_pictures
    from nmt.view.heatmap import draw_heatmap, to_array

    pictures = []
    for number, name in enumerate(data.classes):
        pairs = [pair for pair in zip(data.test, predictions, strict=True) if pair[0].label == number]
        if not pairs:
            continue
        example, prediction = min(pairs, key=unsuitability)
        sides = [[NULL_LABEL, *words_of(text)] for text in example[:2]]
        gold = example.gold and Links(*(frozenset((i + 1, j + 1) for i, j in links) for links in example.gold))
        panels = {"alpha: rows sum to 1": prediction.alpha, "beta: columns sum to 1": prediction.beta.T}
        pictures.append(to_array(draw_heatmap(panels, *sides, title=name, gold=gold)))
    Image.fromarray(stack_pictures(pictures)).save(path)


def unsuitability(pair: tuple[LabeledPair, PairPrediction]) -> tuple[bool, int]:
    """Return a key that is low for a pair that is correctly classified and neither long nor very short."""
    example, prediction = pair
    return prediction.label != example.label, sum(abs(len(words_of(text)) - TYPICAL_LENGTH) for text in example[:2])


if __name__ == "__main__":
    main()
