"""How does alignment come about? The attention to one sentence, at five moments of training.

An English adjective stands before its noun and most French ones after it, so the attention has to cross: the sentence
chosen (of the validation split, never trained on) has such a pair. Soft alignments like these are Figure 3 of Bahdanau
et al. (2015), and here they are seen to sharpen. Gold links are outlined; the target is given (forced decoding), so
that all moments show the same words.

The table has for each moment the updates and minutes of training, BLEU (greedy), alignment error rate and entropy of
attention on the validation split, and for the two crossing words the weight of attention on the right word.

One run is trained, stopped at each moment and continued, at a constant learning rate. Moments that are written down
already are not trained again, and other settings are refused: give another --output to start anew. With `--quick` a
small model learns sentences of up to 10 words.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt.alignment.pharaoh import Link, Links, parse_pharaoh
from nmt.cli import user_errors
from nmt.config.file import save_config
from nmt.config.schema import DataConfig, TrainConfig
from nmt.errors import UserError
from studies.study import (
    CONFIG,
    PICTURE,
    SMALL,
    TABLE,
    Study,
    build_parser,
    check_settings,
    effort_of,
    print_table,
    records_of,
    remembered,
    tell,
    train_run,
    write_table,
)

MOMENTS = (0.03, 0.1, 0.2, 0.45, 1.0)  # as shares of the training
FULL = ("trainer.max_epochs=null", "schedule.kind=constant", "optimizer.learning_rate=2e-3")
QUICK = (*SMALL, *FULL, "data.grammar.max_length=10", "data.grammar.validation_size=500")
WORDS = range(5, 11)  # of a sentence that is easily read


class Crossing(NamedTuple):
    """A sentence pair in which an adjective and its noun change places; `links` are theirs."""

    source: str
    target: str
    gold: Links
    links: tuple[Link, Link]


def main() -> None:
    """Train a run in five parts, look at the sentence after each, and draw them side by side."""
    parser = build_parser(__doc__ or "", minutes=6.0)
    options = parser.parse_intermixed_args()
    with user_errors():
        study = Study.of(options, "alignment")
        config = study.configure(*(QUICK if options.quick else FULL), *study.limits(1))
        check_settings([replace(config, run_dir=str(study.output))])
        pair = crossing(config.data)
        study.output.mkdir(parents=True, exist_ok=True)
        save_config(config, study.output / CONFIG)
        found = []
        for number, part in enumerate(parts(replace(config, run_dir=str(study.run_dir("run")))), start=1):
            tell(f"moment {number} of {len(MOMENTS)}")
            found.append(moment(study, part, pair, number))
        report(study, found, pair)


def parts(config: TrainConfig) -> list[TrainConfig]:
    """Return the configuration of each part of the run: that of the whole, ended at its moment."""
    whole, found, before = config.trainer, [], 0
    for share in MOMENTS:
        minutes, steps = whole.max_minutes, whole.max_steps
        if steps is not None:
            before = steps = max(before + 1, round(share * steps))
        minutes = None if minutes is None else minutes * share
        found.append(replace(config, trainer=replace(whole, max_minutes=minutes, max_steps=steps)))
    return found


def moment(study: Study, config: TrainConfig, pair: Crossing, number: int) -> dict[str, Any]:
    """Return what is seen at a moment, trained up to there unless it is written down."""

    def observe() -> dict[str, Any]:
        from nmt.translator import Translator

        run = train_run(config)
        validation, effort = records_of(run, "validation")[-1], effort_of(run)
        translator = Translator.load(run / "checkpoints" / "last", device=config.trainer.device)
        (alignment,) = translator.align([pair.source], [pair.target])
        return {
            **{name: effort[name] for name in ("updates", "minutes")},
            **{name: validation.get(name) for name in ("bleu", "aer", "attention_entropy")},
            "weights": alignment.weights.tolist(),
        }

    seen: dict[str, Any] = remembered(study.output / f"moment{number}.json", observe)
    return seen


def crossing(data: DataConfig) -> Crossing:
    """Return the first pair of the validation split in which an adjective and its noun change places.

    Raises:
        UserError: there is none.
    """
    from nmt.data.corpus import load_split
    from nmt.data.grammar.lexicon import Lexicon

    adjectives = {each.english for each in Lexicon().adjectives if not each.before_noun}
    for row in load_split(data, "validation"):
        words, gold = row["source"].split(), parse_pharaoh(row.get("alignment") or "")
        for i, j in itertools.product(range(len(words) - 1), range(len(row["target"].split()) - 1)):
            links = ((i, j + 1), (i + 1, j))
            if len(words) in WORDS and words[i] in adjectives and gold.sure.issuperset(links):
                return Crossing(row["source"], row["target"], gold, links)
    raise UserError(
        f"no validation sentence of {WORDS[0]} to {WORDS[-1]} words has an adjective that French puts behind its noun: "
        "the study needs data=grammar, with data.grammar.validation_size=500 or so"
    )


def report(study: Study, found: Sequence[dict[str, Any]], pair: Crossing) -> None:
    """Write and print the table, and draw the moments side by side."""
    rows = []
    for seen in found:
        row, weights = dict(seen), np.asarray(seen["weights"])
        del row["weights"]
        adjective, noun = (float(weights[j, i]) for i, j in pair.links)
        rows.append({**row, "adjective_weight": adjective, "noun_weight": noun})
    write_table(rows, study.output / TABLE)
    draw(found, pair, study.output / PICTURE)
    print_table(rows, pair.source)
    print(f"table: {study.output / TABLE}   picture: {study.output / PICTURE}")


def draw(found: Sequence[dict[str, Any]], pair: Crossing, path: Path) -> None:
    """Draw the attention at each moment."""
    from nmt.evaluation.heatmap import draw_heatmaps, save_png
    from nmt.evaluation.report import number

    panels = {f"update {seen['updates']}, AER {number(seen['aer'], 2)}": np.asarray(seen["weights"]) for seen in found}
    save_png(draw_heatmaps(panels, pair.source.split(), pair.target.split(), gold=pair.gold), path)


if __name__ == "__main__":
    main()
