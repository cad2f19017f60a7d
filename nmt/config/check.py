"""Checks of a configuration, and error messages about it that name the key and what is allowed."""

import dataclasses
import numbers
import operator
from collections.abc import Iterable
from typing import Any, get_args, get_origin

from nmt.config.schema import LARGEST_INTEGER, keys, type_name
from nmt.errors import UserError, nearest, unknown

NUMBERS = {int: numbers.Integral, float: numbers.Real}  # as NumPy's numbers are, too


def check(config: Any) -> None:
    """Raise UserError, with key, value and what is allowed, for an unknown key or a value of another type, not among
    the choices, or out of bounds.
    """
    check_names(config)
    for name, member, value in keys(config):
        if not has_type(value, member.type):
            raise wrong_type(name, member, value)
        if name.endswith("_language") and value in ("True", "False"):
            raise UserError(f"{name}={value}: YAML reads `no` and `yes` as truth values; write them in quotes")
        choices = member.metadata.get("choices") or ()
        if choices and value is not None and value not in choices:
            raise unknown(name, value, choices)
        length = member.metadata.get("length")
        if length is not None and len(value) != length:
            raise UserError(f"{name}={value} has {len(value)} elements: it must have {length}")
        limit = {"at most": LARGEST_INTEGER} if isinstance(value, int) else {}
        check_bounds(name, value, limit | member.metadata.get("bounds", {}))


def has_type(value: Any, annotation: Any) -> bool:
    """Return whether a value is of the type that a key declares; the elements of a list are not looked at."""
    if annotation is Any:
        return True
    if get_origin(annotation) is list:
        return isinstance(value, list)
    return isinstance(value, tuple(NUMBERS.get(kind, kind) for kind in get_args(annotation) or (annotation,)))


def wrong_type(name: str, member: dataclasses.Field[Any], value: Any) -> UserError:
    """Return the error for a value that is not of the type of its key."""
    shown = "null" if value is None else repr(value)
    return UserError(f"{name}={shown} has the wrong type: it must be {type_name(member)}")


def check_bounds(name: str, value: Any, bounds: dict[str, float]) -> None:
    """Raise `UserError` for a number, or one of a list, that is out of bounds."""
    compare = {"at least": operator.ge, "above": operator.gt, "below": operator.lt, "at most": operator.le}
    values, subject = (value, "each") if isinstance(value, list) else ([value], "it")
    for relation, bound in bounds.items():
        if not all(number is None or compare[relation](number, bound) for number in values):
            raise UserError(f"{name}={value} is out of range: {subject} must be {relation} {bound}")


def check_names(config: Any, prefix: str = "", root: Any = None) -> None:
    """Raise `UserError` for a key that the dataclasses do not declare, which `+key=value` can add."""
    root = config if root is None else root
    declared = {member.name for member in dataclasses.fields(config)}
    for name, value in vars(config).items():
        if name not in declared:
            raise unknown_key(f"{prefix}{name}", root)
        if dataclasses.is_dataclass(value):
            check_names(value, f"{prefix}{name}.", root)


def check_settings(kind: str, names: Iterable[str], config: type, *others: str) -> None:
    """Raise UserError, suggesting the nearest name, for one that is neither a field of `config` nor in `others`."""
    fields = [field.name for field in dataclasses.fields(config)]
    for name in names:
        if name not in fields:
            raise unknown(kind, name, [*fields, *others])


def unknown_key(name: str, config: Any) -> UserError:
    """Return the error for a key that does not exist, naming the nearest that does."""
    declared = [declared_name for declared_name, _, _ in keys(config)]
    group, dot, last = name.rpartition(".")
    siblings = [each for each in declared if dot and each.startswith(f"{group}.")]
    namesakes = [each for each in declared if each.split(".")[-1] == last]
    if siblings:
        hint = nearest(last, [sibling.removeprefix(f"{group}.") for sibling in siblings]).replace("'", f"'{group}.", 1)
    elif len(namesakes) == 1:
        hint = f"; did you mean {namesakes[0]!r}?"
    else:
        groups = (each.rpartition(".")[0] for each in declared if "." in each)
        hint = nearest(name, {*declared, *groups})
    return UserError(f"unknown key {name!r}{hint or ' (--cfg job lists all keys)'}")


def value_of_group(name: str, config: Any) -> UserError:
    """Return the error for a value that is given to a group of keys; if there is no such group, of an unknown key."""
    first = next((key for key, _, _ in keys(config) if key.startswith(f"{name}.")), None)
    if first is None:
        return unknown_key(name, config)
    return UserError(f"{name} is a group of keys, no value: set one of them, such as {first}=...")


def readable_error(error: Exception, config: Any) -> UserError:
    """Return an error of OmegaConf, or one of Hydra that it caused, as one clear line about a key of `config`."""
    from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException, ValidationError

    cause = error if isinstance(error, OmegaConfBaseException) else error.__cause__ or error.__context__
    name = (getattr(cause, "full_key", None) or "").split("[")[0]
    members = {key: member for key, member, _ in keys(config)}
    if isinstance(cause, ConfigAttributeError | ConfigKeyError) and name:
        return unknown_key(name, config)
    if isinstance(cause, ValidationError) and name in members:
        return wrong_type(name, members[name], cause.value)
    if any(key.startswith(f"{name}.") for key in members):
        return value_of_group(name, config)
    message = " ".join(str(cause or error).split("\n    full_key")[0].split())
    return UserError(f"{name}: {message}" if name else message)
