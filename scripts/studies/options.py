"""Options of the scripts' command lines: numbers, threads, and configurations from the overrides of `nmt.train`."""

import argparse
import math
from typing import Any

from nmt.cli import composition_error, config_folder, register_schemas
from nmt.config.automatic import fill_defaults
from nmt.config.check import check, readable_error
from nmt.config.file import load_config
from nmt.config.schema import LARGEST_SEED, TrainConfig
from nmt.translate import at_least

positive = at_least(int, 1)


def positive_number(text: str) -> float:
    """Read a number above 0."""
    number = float(text)
    if not 0.0 < number < math.inf:
        raise ValueError
    return number


def seed(text: str) -> int:
    """Read a seed."""
    number: int = at_least(int, 0)(text)
    if number > LARGEST_SEED:
        raise argparse.ArgumentTypeError(f"must be at most {LARGEST_SEED}, not {text}")
    return number


def use_threads(number: int | None) -> None:
    """Let torch use this many CPU threads, or its own choice."""
    if number is not None:
        import torch

        torch.set_num_threads(number)


def configured(overrides: list[str], checkpoint: str | None = None) -> TrainConfig:
    """Compose the configuration of a new run, or take that of a checkpoint, with overrides.

    Keys that are not set have the defaults of the schema, whatever the corpus: figures can then be compared.

    Raises:
        UserError: an override does not fit.
    """
    import yaml
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        composed = composed_run(overrides) if checkpoint is None else changed_checkpoint(overrides, checkpoint)
        config = fill_defaults(OmegaConf.to_object(composed), TrainConfig)
    except OmegaConfBaseException as error:
        raise readable_error(error, TrainConfig()) from error
    except (HydraException, yaml.YAMLError) as error:
        raise composition_error(error, TrainConfig()) from error
    config.automatic = []
    check(config)
    return config


def composed_run(overrides: list[str]) -> Any:
    """Compose as `python -m nmt.train` does, but make no folder."""
    import hydra

    register_schemas()
    with hydra.initialize_config_dir(config_dir=str(config_folder()), version_base="1.3"):
        return hydra.compose("train", overrides=overrides)


def changed_checkpoint(overrides: list[str], checkpoint: str) -> Any:
    """Return the configuration of a checkpoint, with overrides of keys."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    from nmt.models.checkpoint import CONFIG, find_checkpoint

    config = OmegaConf.structured(load_config(find_checkpoint(checkpoint) / CONFIG))
    for override in OverridesParser.create().parse_overrides(overrides):
        OmegaConf.update(config, override.key_or_group, override.value())
    return config
