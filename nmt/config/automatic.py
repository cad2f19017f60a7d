"""Automatic keys: null when composed, and chosen by the program once the corpus and the time are known.

Composition must distinguish values that were given, on the command line or in a YAML file, from defaults. So these keys
(`automatic=True` in `nmt.config.schema`) are null in a composed configuration unless they are given; `fill_defaults`
replaces the nulls by the schema's defaults and lists these keys in `TrainConfig.automatic`. Saved files list none.
"""

import dataclasses
import operator
from collections.abc import Mapping
from typing import Any, TypeVar

from nmt.config.check import check_names
from nmt.config.schema import TrainConfig, keys
from nmt.errors import unknown

Config = TypeVar("Config")

AUTOMATIC = tuple(
    name for name, member, _ in keys(TrainConfig()) if member.metadata.get("automatic") and name != "automatic"
)


def with_null_defaults(schema: type) -> type:
    """Return a subclass of a dataclass in which automatic keys may be null, and are unless a value is given."""
    members: list[Any] = []
    for member in dataclasses.fields(schema):
        kind: Any = member.type
        if dataclasses.is_dataclass(kind):
            group = with_null_defaults(kind)  # type: ignore[arg-type]
            members.append((member.name, group, dataclasses.field(default_factory=group)))
        elif member.metadata.get("automatic"):
            members.append((member.name, kind | None, dataclasses.field(default=None, metadata=member.metadata)))
    return dataclasses.make_dataclass(schema.__name__, members, bases=(schema,), kw_only=True)


def fill_defaults(composed: Any, schema: type[Config]) -> Config:
    """Return an instance of `with_null_defaults(schema)` as one of `schema`, with its defaults instead of nulls; raise
    UserError if a key does not exist, or `automatic` names one that cannot be automatic.
    """
    check_names(composed)
    given = {
        name: value
        for name, member, value in keys(composed)
        if value is not None or not member.metadata.get("automatic")
    }
    config = schema()
    set_keys(config, given)
    if isinstance(config, TrainConfig):
        allowed = AUTOMATIC if composed.automatic is None else composed.automatic
        for name in allowed:
            if name not in AUTOMATIC:
                raise unknown("key in automatic", name, AUTOMATIC)
        config.automatic = [name for name in AUTOMATIC if name in allowed and value_of(composed, name) is None]
    return config


def value_of(config: Any, name: str) -> Any:
    """Return the value of a key by its dotted name."""
    return operator.attrgetter(name)(config)


def set_keys(config: Any, values: Mapping[str, Any]) -> None:
    """Set keys by their dotted names."""
    for name, value in values.items():
        group, _, last = name.rpartition(".")
        setattr(value_of(config, group) if group else config, last, value)
