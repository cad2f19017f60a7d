"""A configuration as a YAML file: the config.yaml of a run or a checkpoint."""

import dataclasses
from pathlib import Path
from typing import Any

from nmt.config.check import check, explain
from nmt.config.schema import TrainConfig
from nmt.errors import UserError


def save_config(config: Any, path: Path) -> None:
    """Write all keys of a configuration, including defaults, as plain YAML."""
    import yaml

    path.write_text(yaml.safe_dump(dataclasses.asdict(config), sort_keys=False, allow_unicode=True), encoding="utf-8")


def load_config(path: Path) -> TrainConfig:
    """Read what `save_config` wrote; a key that is missing gets its default.

    The file can only make the dataclasses of `nmt.config.schema`: YAML tags are refused, and interpolations (`${...}`)
    are plain text.

    Raises:
        UserError: naming the file, if it cannot be read, is not YAML, or has wrong keys, types or values.
    """
    import yaml
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        values = _escape(yaml.safe_load(path.read_text(encoding="utf-8")))
        if not isinstance(values, dict):
            raise UserError("not a mapping of keys to values")
        config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(TrainConfig), values))
        assert isinstance(config, TrainConfig)
        check(config)
    except UserError as error:
        raise UserError(f"{path} is not a configuration of nmt: {error}") from error
    except OmegaConfBaseException as error:
        raise UserError(f"{path} is not a configuration of nmt: {explain(error, TrainConfig())}") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"cannot read the configuration {path}: {' '.join(str(error).split())}") from error
    return config


def _escape(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _escape(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_escape(member) for member in value]
    return value.replace("${", "\\${") if isinstance(value, str) else value
