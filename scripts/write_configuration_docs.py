"""Write docs/configuration.md from the schema: `python scripts/write_configuration_docs.py`."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nmt.config.schema import EvaluateConfig, TrainConfig, type_name

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "configuration.md"
CONFIGS = ROOT / "configs"

INTRODUCTION = """\
# Configuration

Made from `nmt/config/schema.py` by `python scripts/write_configuration_docs.py`; a test keeps it current.

A run is configured by `configs/train.yaml`, by one file of each group, and by the command line, in that order:
`python -m nmt.train model=luong model.cell=gru optimizer.learning_rate=5e-4`. The files hold only what differs
from the defaults below. A wrong key, type, choice or bound ends the program with status 2 and one line, before
any work. `--cfg job` prints the composed configuration without running; `-m model=bahdanau,luong` runs one job
for each value; `--config-dir DIR` adds a folder of groups of your own. A value that holds one of `[]{}=,` needs
quotes inside the shell's: `'data.train.name="train[:1000]"'`.

A default that is marked "automatic" is that of Python. On the command line and in YAML files the key is null until it
is given, and its value follows from the number of training pairs and the time, by the
[guide's table](guide.md#sizes-that-are-not-given).
"""


def render() -> str:
    """Return the text of docs/configuration.md."""
    parts = [INTRODUCTION, groups()]
    for title, config in (("nmt.train", TrainConfig()), ("nmt.evaluate", EvaluateConfig())):
        parts.append(f"# Keys of `python -m {title}`\n")
        parts.extend(sections(config, ""))
    return "\n".join(parts)


def groups() -> str:
    """Return the table of groups and the names to choose from."""
    lines = ["| group | names |", "|---|---|"]
    for folder in sorted(folder for folder in CONFIGS.iterdir() if folder.is_dir()):
        names = " ".join(f"`{file.stem}`" for file in sorted(folder.glob("*.yaml")))
        lines.append(f"| `{folder.name}` | {names} |")
    return "\n".join(lines) + "\n"


def sections(config: Any, prefix: str) -> Iterator[str]:
    """Yield a table of keys for a dataclass, then for those nested in it."""
    members = dataclasses.fields(config)
    nested = [member for member in members if dataclasses.is_dataclass(getattr(config, member.name))]
    if leaves := [member for member in members if member not in nested]:
        lines = [f"## {prefix.rstrip('.') or 'top level'}", "", str(type(config).__doc__), ""]
        lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
        lines += [row(prefix, member, getattr(config, member.name)) for member in leaves]
        yield "\n".join(lines) + "\n"
    for member in nested:
        yield from sections(getattr(config, member.name), f"{prefix}{member.name}.")


def row(prefix: str, member: dataclasses.Field[Any], default: Any) -> str:
    """Return a key's line of the table."""
    allowed = [f"one of {', '.join(f'`{choice}`' for choice in member.metadata['choices'])}"]
    allowed = allowed if member.metadata["choices"] else []
    allowed += [f"{member.metadata['length']} elements"] if member.metadata["length"] else []
    allowed += [f"{relation} {bound}" for relation, bound in member.metadata["bounds"].items()]
    meaning = member.metadata["help"] + (f" ({'; '.join(allowed)})" if allowed else "")
    shown = "null" if default is None else str(default).lower() if isinstance(default, bool) else str(default)
    default_cell = f"`{shown}`, automatic" if member.metadata["automatic"] else f"`{shown}`"
    cells = (f"`{prefix}{member.name}`", type_name(member), default_cell, meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
