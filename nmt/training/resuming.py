"""Going on with a run, or beginning with what another has learned."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nmt.config.file import load_config
from nmt.config.schema import TrainConfig, changes
from nmt.errors import UserError
from nmt.evaluation.metrics import bleu_tokenizer
from nmt.models.checkpoint import CONFIG, WEIGHTS, find_checkpoint, recover, retired


def previous_checkpoint(config: TrainConfig) -> Path | None:
    """Return the checkpoint that the run goes on from, or None.

    Raises:
        UserError: there is one, but `resume=never`, or it cannot be gone on from as configured.
    """
    last = Path(config.run_dir) / "checkpoints" / "last"
    if config.resume == "never" and any((folder / WEIGHTS).is_file() for folder in (last, retired(last))):
        raise UserError(f"{config.run_dir} already holds a trained run: give another run_dir, or resume=auto to go on")
    recover(last.parent)
    if not (last / WEIGHTS).is_file():
        return None
    check_same(config, last, is_part_of_run, f"cannot continue from {last}", "restore that, or give another run_dir")
    return last


def initial_checkpoint(config: TrainConfig) -> Path | None:
    """Return the checkpoint whose weights and subwords a new run begins with, or None.

    Raises:
        UserError: there is none where `trainer.initialize_from` says, or it is not of the model configured.
    """
    if config.trainer.initialize_from is None:
        return None
    found = find_checkpoint(config.trainer.initialize_from)
    check_same(
        config, found, is_part_of_model, f"cannot begin with the weights of {found}", "set what they were trained with"
    )
    return found


def check_same(
    config: TrainConfig, checkpoint: Path, is_part: Callable[[str], bool], failure: str, remedy: str
) -> None:
    """Raise UserError if some keys are not as the checkpoint was trained with."""
    before = load_config(checkpoint / CONFIG)
    wrong = {name: values for name, values in changes(before, config).items() if is_part(name)}
    if wrong:
        now, then = (" ".join(f"{name}={shown(each[side])}" for name, each in wrong.items()) for side in (1, 0))
        raise UserError(f"{failure} with {now}: it was trained with {then}; {remedy}")


def is_part_of_model(name: str) -> bool:
    """Tell whether a key belongs to what weights mean: the model, but for its rates of dropout, and the subwords."""
    may_change = name.endswith("dropout") or name in ("model.fast", "tokenizer.sampling")
    return name.startswith(("model.", "tokenizer.")) and not may_change


def is_part_of_run(name: str) -> bool:
    """Tell whether a key must stay as it is in a run; what the order of batches depends on, the loader knows."""
    return is_part_of_model(name) or name == "seed"


def is_judged_otherwise(config: TrainConfig, checkpoint: Path) -> bool:
    """Tell whether the best score that a checkpoint knows of cannot be compared with the next."""
    before = load_config(checkpoint / CONFIG)
    return bleu_tokenizer(before) != bleu_tokenizer(config) or any(map(is_part_of_judgment, changes(before, config)))


def is_part_of_judgment(name: str) -> bool:
    """Tell whether scores of validations depend on a key, of those but the model's and the tokenizer's of BLEU."""
    text = name.startswith("data.") and not name.startswith(("data.train.", "data.test.", "data.cache", "data.num"))
    return text or name.startswith("search.") or name in ("trainer.metric", "trainer.validation_beam_size", "lowercase")


def shown(value: Any) -> str:
    """Return a value as it is written on the command line."""
    return "null" if value is None else str(value)
