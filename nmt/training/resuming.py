"""Checkpoints that a run resumes from or is initialized with, and whether its configuration allows that."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nmt.config.automatic import set_keys, value_of
from nmt.config.file import load_config
from nmt.config.schema import TrainConfig, changes
from nmt.errors import UserError
from nmt.evaluation.records import RECORDS, read_records
from nmt.models.checkpoint import CONFIG, WEIGHTS, find_checkpoint, recover, retired
from nmt.training.progress import validates_by_time

logger = logging.getLogger(__name__)

SUBWORD_FILES = ("tokenizer.source_model", "tokenizer.target_model")


def find_previous_checkpoint(config: TrainConfig) -> Path | None:
    """Return the checkpoint that the run resumes from, or None. Keys that are not set take its values.

    Raises:
        UserError: there is a checkpoint although `resume=never`, it does not fit the configuration, or it is lost.
    """
    last = Path(config.run_dir) / "checkpoints" / "last"
    best = last.with_name("best")
    held = (folder for name in (last, best) for folder in (name, retired(name)))
    if config.resume == "never" and any((folder / WEIGHTS).is_file() for folder in held):
        raise UserError(f"{config.run_dir} already holds a trained run: give another run_dir, or resume=auto to go on")
    recover(last.parent)
    if not (last / WEIGHTS).is_file():
        check_nothing_is_lost(last)
        return None
    if not validates_by_time(config.trainer):  # then the minutes of a run with a limit of time make no sense
        config.automatic = [name for name in config.automatic if name != "trainer.validate_every_minutes"]
    saved = load_config(last / CONFIG)
    take_values(config, saved, lambda name: True)
    if config.trainer.initialize_from is not None:
        take_subword_files(config, saved)
    failure = f"cannot continue from {last}"
    check_fixed_keys(config, saved, is_fixed_in_run, failure, "restore that, or give another run_dir")
    return last


def check_nothing_is_lost(last: Path) -> None:
    """Raise UserError where a run has no checkpoint `last` but a `best`, which a training from the beginning replaces.

    A run that was killed at its first validation may have saved the best alone, and begins anew.
    """
    best, run_dir = last.with_name("best"), last.parents[1]
    if not (best / WEIGHTS).is_file():
        return
    validations = sum(record.get("event") == "validation" for record in read_records(run_dir / RECORDS))
    if validations != 1:
        raise UserError(
            f"{last} is lost, and training from the beginning would replace {best}: put it back, or give another "
            f"run_dir (with trainer.initialize_from={best} to begin with those weights)"
        )


def find_initial_checkpoint(config: TrainConfig) -> Path | None:
    """Return the checkpoint whose weights and subwords a new run begins with (`trainer.initialize_from`), or None.

    Keys of the model and of subwords that are not set take its values. A warning is logged for other languages.

    Raises:
        UserError: there is no checkpoint, or it is not of the model configured.
    """
    if config.trainer.initialize_from is None:
        return None
    checkpoint = find_checkpoint(config.trainer.initialize_from)
    saved = load_config(checkpoint / CONFIG)
    take_values(config, saved, is_fixed_in_model)
    take_subword_files(config, saved)
    if saved.data.direction != config.data.direction:
        logger.warning(
            "%s translates %s, and this run is to translate %s: unless that is meant, set data.source_language=%s "
            "data.target_language=%s",
            checkpoint,
            saved.data.direction,
            config.data.direction,
            saved.data.source_language,
            saved.data.target_language,
        )
    failure = f"cannot begin with the weights of {checkpoint}"
    check_fixed_keys(config, saved, is_fixed_in_model, failure, "set what they were trained with")
    return checkpoint


def take_values(config: TrainConfig, saved: TrainConfig, is_taken: Callable[[str], bool]) -> None:
    """Give keys of `config.automatic` their values in a checkpoint, in place; they are automatic no more."""
    names = [name for name in config.automatic if is_taken(name)]
    set_keys(config, {name: value_of(saved, name) for name in names})
    config.automatic = [name for name in config.automatic if name not in names]


def take_subword_files(config: TrainConfig, saved: TrainConfig) -> None:
    """Name the files that a checkpoint's subwords were taken from, unless others are given, which is refused later.

    They are not read, and may be gone: the checkpoint has its subwords.
    """
    set_keys(config, {name: value_of(saved, name) for name in SUBWORD_FILES if value_of(config, name) is None})


def check_fixed_keys(
    config: TrainConfig, saved: TrainConfig, is_fixed: Callable[[str], bool], failure: str, remedy: str
) -> None:
    """Raise UserError if a fixed key has another value than in the checkpoint's configuration."""
    changed = {name: values for name, values in changes(saved, config).items() if is_fixed(name)}
    if changed:
        then = " ".join(f"{name}={format_value(value)}" for name, (value, _) in changed.items())
        now = " ".join(f"{name}={format_value(value)}" for name, (_, value) in changed.items())
        raise UserError(f"{failure} with {now}: it was trained with {then}; {remedy}")


def is_fixed_in_model(name: str) -> bool:
    """Return whether weights are tied to a key's value: those of model and subwords, except rates of dropout."""
    may_change = name.endswith("dropout") or name in ("model.fast", "tokenizer.sampling")
    return name.startswith(("model.", "tokenizer.")) and not may_change


def is_fixed_in_run(name: str) -> bool:
    """Return whether a key may not change within a run; the loader itself checks those that order the batches."""
    return is_fixed_in_model(name) or name == "seed"


def format_value(value: Any) -> str:
    """Return a value as it is written on the command line."""
    return "null" if value is None else str(value)
