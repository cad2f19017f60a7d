"""Preprocess Hydra's command line: options and overrides in any order, and one-line errors for wrong ones."""

import contextlib
import difflib
import io
import re
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from nmt.config.schema import keys, type_name
from nmt.errors import UserError

HOME_VALUE = re.compile(r"""(?P<key>[+\w./]+)=(?:(?P<quote>["'])(?P<quoted>~/[^"']*)(?P=quote)|(?P<plain>~/[^"',]*))""")


def normalize_arguments(arguments: Sequence[str], config: Any) -> list[str]:
    """Return a command line that Hydra can read: its options first, then the overrides of `config`'s keys.

    `--checkpoint RUN`, as in `nmt.translate`, becomes `checkpoint=RUN` if that is a key.

    Raises:
        UserError: an option that Hydra does not have, and which key to set instead; or two keys for one folder.
    """
    from hydra._internal.utils import get_args_parser

    text_keys = {name for name, member, _ in keys(config) if {"str", "any"} & set(type_name(member).split())}
    arguments = [with_quotes(with_home(argument), text_keys) for argument in with_checkpoint(arguments, config)]
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            options, unknown = get_args_parser().parse_known_intermixed_args(arguments)
    except SystemExit as exit:
        if not exit.code:  # --version
            raise
        raise UserError(f"{stderr.getvalue().strip().rpartition('error: ')[2]}; see --help") from None
    for argument in unknown:
        if argument.startswith("-"):
            raise unknown_option(argument, arguments, config)
    overrides = [*options.overrides, *unknown]
    given = {override.partition("=")[0] for override in overrides}
    for own in ("hydra.run.dir", "hydra.sweep.dir"):  # would win
        if {"run_dir", own} <= given:
            raise UserError(f"run_dir and {own} both name the folder of the run: leave {own} out")
    return [argument for argument in arguments if argument not in overrides] + overrides


def with_checkpoint(arguments: Sequence[str], config: Any) -> list[str]:
    """Return the arguments with `--checkpoint RUN` or `--checkpoint=RUN` as `checkpoint=RUN`, if that is a key."""
    if "checkpoint" not in vars(config):
        return list(arguments)
    arguments = [
        argument.removeprefix("--") if argument.startswith("--checkpoint=") else argument for argument in arguments
    ]
    if "--checkpoint" in arguments[:-1]:
        place = arguments.index("--checkpoint")
        arguments[place : place + 2] = [f"checkpoint={arguments[place + 1]}"]
    return arguments


def with_home(argument: str) -> str:
    """Expand a leading ~/ in the value of an override, quoted or not; lists are left alone."""
    match = HOME_VALUE.fullmatch(argument)
    return f'{match["key"]}="{Path(match["quoted"] or match["plain"]).expanduser()}"' if match else argument


def with_quotes(argument: str, text_keys: Container[str]) -> str:
    """Return an override of text in quotes if Hydra could not read it without, or not as text: a path may have letters
    that its grammar lacks, and the name `2025_11_25` is a number to it.

    Lists, and what begins with a quote or a tilde, are left as they are.
    """
    key, equals, value = argument.partition("=")
    if not equals or key not in text_keys or value.startswith(("'", '"', "[", "{", "~")) or is_text(argument):
        return argument
    escaped = re.sub(r'(\\*)("|$)', lambda match: 2 * match[1] + (r"\"" if match[2] else ""), value)
    return f'{key}="{escaped}"'


def is_text(override: str) -> bool:
    """Return whether Hydra can read an override, and takes its value for no number or truth value."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        value = OverridesParser.create().parse_override(override).value()
    except HydraException:
        return False
    return not isinstance(value, int | float)


def unknown_option(option: str, arguments: Sequence[str], config: Any) -> UserError:
    """Return the error for an option that does not exist, with the override that was probably meant."""
    option_name, equals, value = option.partition("=")
    following = arguments[arguments.index(option) + 1 :]
    if not equals:
        is_value = following and "=" not in following[0] and not following[0].startswith("-")
        value = following[0] if is_value else "..."
    leaves = [key for key, _, _ in keys(config)]
    names = [*(group for group in vars(config) if group not in leaves), *leaves]
    word = option_name.lstrip("-").replace("-", "_")
    close = difflib.get_close_matches(word, [name.split(".")[-1] for name in names], n=1)
    suggestions = [word] if word in names else [name for name in names if name.split(".")[-1] in close]
    hint = f"write {' or '.join(f'{key}={value}' for key in suggestions)}" if suggestions else "write key=value"
    return UserError(f"there is no option {option_name}: {hint}; --cfg job lists all keys")
