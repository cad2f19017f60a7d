"""A configuration as a YAML file: the config.yaml of a run or a checkpoint."""

import dataclasses
import functools
import re
from pathlib import Path
from typing import Any

from nmt.config.check import check, readable_error
from nmt.config.schema import TrainConfig
from nmt.errors import UserError, one_line

MAX_BYTES = 1_000_000  # a hundred times what a run writes
MAX_BRACKETS = 1_000


def save_config(config: Any, path: Path) -> None:
    """Write all keys of a configuration, including defaults, as plain YAML; raise UserError for one that `load_config`
    would refuse for its size.
    """
    import yaml

    text = yaml.safe_dump(dataclasses.asdict(config), sort_keys=False, allow_unicode=True)
    if len(text.encode()) > MAX_BYTES or text.count("[") + text.count("{") > MAX_BRACKETS:
        raise UserError(
            f"the configuration takes more than {MAX_BYTES:,} bytes, or {MAX_BRACKETS:,} brackets: it probably names "
            "thousands of files; join them into fewer"
        )
    path.write_text(text, encoding="utf-8")


def load_config(path: Path) -> TrainConfig:
    """Read what `save_config` wrote; a key that is missing gets its default.

    The file can only make the dataclasses of `nmt.config.schema`: YAML tags and aliases are refused, and
    interpolations (`${...}`) are plain text.

    Raises:
        UserError: naming the file, if it cannot be read, is not YAML, or has wrong keys, types or values.
    """
    import yaml
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        values = _as_plain_text(parse_yaml(path))
        if not isinstance(values, dict):
            raise UserError("not a mapping of keys to values")
        config = OmegaConf.to_object(OmegaConf.merge(typed_defaults(), values))
        assert isinstance(config, TrainConfig)
        check(config)
        sections = [member.name for member in dataclasses.fields(TrainConfig) if dataclasses.is_dataclass(member.type)]
        if missing := [name for name in sections if name not in values]:  # single keys may be younger than the file
            raise UserError(f"it has no {missing[-1]}: has it been cut?")
    except UserError as error:
        raise UserError(f"{path} is not a configuration of nmt: {error}") from error
    except OmegaConfBaseException as error:
        raise UserError(f"{path} is not a configuration of nmt: {readable_error(error, TrainConfig())}") from error
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"cannot read the configuration {path}: {one_line(error)}") from error
    return config


@functools.cache
def typed_defaults() -> Any:
    """Return the defaults of `TrainConfig` with their types, to merge a file into: made once, as it takes longest."""
    from omegaconf import OmegaConf

    return OmegaConf.structured(TrainConfig)


def parse_yaml(path: Path) -> Any:
    """Return the content of a YAML file; raise ValueError if it is too large, is not UTF-8, or has aliases, of which a
    few lines can stand for gigabytes.
    """
    import yaml

    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
    text = path.read_text(encoding="utf-8")
    if text.count("[") + text.count("{") > MAX_BRACKETS:
        raise ValueError(f"it has more than {MAX_BRACKETS:,} brackets, each of which may take a parser long")
    if "*" in text and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
        raise ValueError("it has YAML aliases (*name), which nmt does not write")
    return yaml.safe_load(text)


def _as_plain_text(value: Any) -> Any:
    """Return values in which OmegaConf finds no interpolation; raise ValueError for its mark of a missing value."""
    if isinstance(value, dict):
        return {name: _as_plain_text(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_as_plain_text(member) for member in value]
    if value == "???":
        raise ValueError("it has ???, which is no value")
    # A backslash before ${ escapes it, and is itself escaped by another.
    return re.sub(r"(\\*)\$\{", lambda found: 2 * found[1] + r"\${", value) if isinstance(value, str) else value
