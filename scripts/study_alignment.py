"""How alignment is learned: the attention to one sentence, at five moments of training.

    python scripts/study_alignment.py [key=value ...] [--quick] [--minutes M]

An English adjective stands before its noun and most French ones after it, so their links cross: the sentence, of the
validation split, has such a pair. Soft alignments like these are Figure 3 of Bahdanau et al. (2015); here they sharpen
during training. Gold links are outlined; the target is given (forced decoding), so that all moments show the same
words.

The table has for each moment the updates and minutes of training, BLEU (greedy), alignment error rate and entropy of
attention on the validation split, and for each of the two crossing words the attention weight of its gold link.

One run is trained, stopped at each moment and continued, at a constant learning rate. Finished moments are not trained
again, and other settings are refused: give another --output to start anew. With `--quick` a small model is trained on
sentences of up to 10 words.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt.alignment.pharaoh import Link, Links, parse_pharaoh
from nmt.cli import user_errors
from nmt.config.file import save_config
from nmt.config.schema import DataConfig, TrainConfig
from nmt.errors import UserError
from studies.runs import cached, read_records, train_run, training_cost
from studies.study import CONFIG, SMALL, Study, build_parser, check_settings, log, make_output_folder
from studies.tables import report

MOMENTS = (0.03, 0.1, 0.2, 0.45, 1.0)  # as fractions of the training
FULL = ("trainer.max_epochs=null", "schedule.kind=constant", "optimizer.learning_rate=2e-3")
QUICK = (*SMALL, *FULL, "data.grammar.max_length=10", "data.grammar.validation_size=500")
LENGTHS = range(5, 11)  # words of a sentence that is easily read


class Crossing(NamedTuple):
    """A sentence pair in which an adjective and its noun are in opposite order, with its gold links."""

    source: str
    target: str
    gold: Links
    crossing_links: tuple[Link, Link]  # of the adjective and the noun


def main() -> None:
    """Train a run up to each moment, align the sentence there, and draw the alignments side by side."""
    parser = build_parser(__doc__ or "", minutes=6.0)
    options = parser.parse_intermixed_args()
    with user_errors():
        study = Study.from_options(options, "alignment")
        config = study.configure(*(QUICK if options.quick else FULL), *study.limits(1))
        check_settings([replace(config, run_dir=str(study.output))])
        pair = find_crossing(config.data)
        save_config(config, make_output_folder(options, "alignment") / CONFIG)
        moments = []
        configs = configs_of_moments(replace(config, run_dir=str(study.run_dir("run"))))
        for number, moment_config in enumerate(configs, start=1):
            log(f"moment {number} of {len(MOMENTS)}")
            moments.append(cached(study.output / f"moment{number}.json", partial(measure, moment_config, pair)))
        rows = [row_of(moment, pair) for moment in moments]
        report(rows, partial(draw, moments, pair), study.output, title=pair.source)


def configs_of_moments(config: TrainConfig) -> list[TrainConfig]:
    """Return the configuration of the run with its limits at each moment."""
    limits, configs, previous_steps = config.trainer, [], 0
    for fraction in MOMENTS:
        minutes, steps = limits.max_minutes, limits.max_steps
        if steps is not None:
            previous_steps = steps = max(previous_steps + 1, round(fraction * steps))
        minutes = None if minutes is None else minutes * fraction
        configs.append(replace(config, trainer=replace(limits, max_minutes=minutes, max_steps=steps)))
    return configs


def measure(config: TrainConfig, pair: Crossing) -> dict[str, Any]:
    """Train up to the limits of the configuration; return metrics and the attention weights of the pair."""
    from nmt.translator import Translator

    run = train_run(config)
    validation, cost = read_records(run, "validation")[-1], training_cost(run)
    translator = Translator.load(run / "checkpoints" / "last", device=config.trainer.device)
    (alignment,) = translator.align([pair.source], [pair.target])
    return {
        **{name: cost[name] for name in ("updates", "minutes")},
        **{name: validation.get(name) for name in ("bleu", "aer", "attention_entropy")},
        "weights": alignment.weights.tolist(),
    }


def find_crossing(data: DataConfig) -> Crossing:
    """Return the first validation pair with an adjective and its noun in opposite order; else raise UserError."""
    from nmt.data.corpus import load_split
    from nmt.data.grammar.lexicon import Lexicon

    adjectives = {adjective.english for adjective in Lexicon().adjectives if not adjective.before_noun}
    for row in load_split(data, "validation"):
        words, gold = row["source"].split(), parse_pharaoh(row.get("alignment") or "")
        for i, j in itertools.product(range(len(words) - 1), range(len(row["target"].split()) - 1)):
            links = ((i, j + 1), (i + 1, j))
            if len(words) in LENGTHS and words[i] in adjectives and gold.sure.issuperset(links):
                return Crossing(row["source"], row["target"], gold, links)
    raise UserError(
        f"no validation sentence of {LENGTHS[0]} to {LENGTHS[-1]} words has an adjective that French puts behind its "
        "noun: the study needs data=grammar, with data.grammar.validation_size=500 or so"
    )


def row_of(moment: Mapping[str, Any], pair: Crossing) -> dict[str, Any]:
    """Return the row of a moment in the table: its metrics, and the weights of the crossing links."""
    adjective, noun = (float(moment["weights"][j][i]) for i, j in pair.crossing_links)
    metrics = {name: value for name, value in moment.items() if name != "weights"}
    return {**metrics, "adjective_weight": adjective, "noun_weight": noun}


def draw(moments: Sequence[Mapping[str, Any]], pair: Crossing, path: Path) -> None:
    """Draw the attention at each moment."""
    from nmt.view.heatmap import draw_heatmap, save_png

    panels = {f"update {each['updates']}, AER {each['aer']:.2f}": np.asarray(each["weights"]) for each in moments}
    save_png(draw_heatmap(panels, pair.source.split(), pair.target.split(), gold=pair.gold), path)


if __name__ == "__main__":
    main()
