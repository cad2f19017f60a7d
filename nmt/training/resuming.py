"""Checkpoints that a run resumes from or is initialized with, and whether its configuration allows that."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nmt.config.automatic import assign, value_of
from nmt.config.file import load_config
from nmt.config.schema import TrainConfig, changes
from nmt.errors import UserError
from nmt.evaluation.metrics import bleu_tokenizer
from nmt.models.checkpoint import CONFIG, WEIGHTS, find_checkpoint, recover, retired
from nmt.training.progress import validates_by_time

UNSCORED = ("data.train.", "data.test.", "data.cache_dir", "data.num_workers", "data.max_gzip_ratio")
# Validations have a beam size of their own, and how sentences are batched changes no score.
UNVALIDATED = ("search.beam_size", "search.batch_size", "search.batch_unit")


def previous_checkpoint(config: TrainConfig) -> Path | None:
    """Return the checkpoint that the run resumes from, or None. Keys that were not given take its values.

    Raises:
        UserError: there is a checkpoint although `resume=never`, or it does not fit the configuration.
    """
    last = Path(config.run_dir) / "checkpoints" / "last"
    if config.resume == "never" and any((folder / WEIGHTS).is_file() for folder in (last, retired(last))):
        raise UserError(f"{config.run_dir} already holds a trained run: give another run_dir, or resume=auto to go on")
    recover(last.parent)
    if not (last / WEIGHTS).is_file():
        return None
    if not validates_by_time(config.trainer):  # then the minutes of a run with a limit of time make no sense
        config.automatic = [name for name in config.automatic if name != "trainer.validate_every_minutes"]
    adopt(config, last, lambda name: True)
    check_same(config, last, fixed_in_run, f"cannot continue from {last}", "restore that, or give another run_dir")
    return last


def initial_checkpoint(config: TrainConfig) -> Path | None:
    """Return the checkpoint whose weights and subwords a new run begins with (`trainer.initialize_from`), or None.

    Keys of the model and of subwords that were not given get its values.

    Raises:
        UserError: there is no checkpoint, or it is not of the model configured.
    """
    if config.trainer.initialize_from is None:
        return None
    found = find_checkpoint(config.trainer.initialize_from)
    adopt(config, found, fixed_in_model)
    check_same(
        config, found, fixed_in_model, f"cannot begin with the weights of {found}", "set what they were trained with"
    )
    return found


def adopt(config: TrainConfig, checkpoint: Path, is_adopted: Callable[[str], bool]) -> None:
    """Give keys of `config.automatic` their values in a checkpoint, in place; they are automatic no more."""
    before = load_config(checkpoint / CONFIG)
    names = [name for name in config.automatic if is_adopted(name)]
    assign(config, {name: value_of(before, name) for name in names})
    config.automatic = [name for name in config.automatic if name not in names]


def check_same(
    config: TrainConfig, checkpoint: Path, is_fixed: Callable[[str], bool], failure: str, remedy: str
) -> None:
    """Raise UserError if a fixed key has another value than in the checkpoint's configuration."""
    before = load_config(checkpoint / CONFIG)
    wrong = {name: values for name, values in changes(before, config).items() if is_fixed(name)}
    if wrong:
        now, then = (" ".join(f"{name}={shown(values[side])}" for name, values in wrong.items()) for side in (1, 0))
        raise UserError(f"{failure} with {now}: it was trained with {then}; {remedy}")


def fixed_in_model(name: str) -> bool:
    """Return whether weights are tied to a key's value: those of model and subwords, except rates of dropout."""
    may_change = name.endswith("dropout") or name in ("model.fast", "tokenizer.sampling")
    return name.startswith(("model.", "tokenizer.")) and not may_change


def fixed_in_run(name: str) -> bool:
    """Return whether a key may not change within a run; the loader itself checks those that order the batches."""
    return fixed_in_model(name) or name == "seed"


def scores_are_comparable(config: TrainConfig, checkpoint: Path) -> bool:
    """Return whether validations as configured can be compared with the best score of a checkpoint."""
    before = load_config(checkpoint / CONFIG)
    return bleu_tokenizer(before) == bleu_tokenizer(config) and not any(map(affects_scores, changes(before, config)))


def affects_scores(name: str) -> bool:
    """Return whether validation scores depend on a key, besides those of the model and BLEU's tokenizer."""
    text = name.startswith("data.") and not name.startswith(UNSCORED)
    search = name.startswith("search.") and name not in UNVALIDATED
    return text or search or name in ("trainer.metric", "trainer.validation_beam_size", "lowercase")


def shown(value: Any) -> str:
    """Return a value as it is written on the command line."""
    return "null" if value is None else str(value)
