"""The commands of README.md, CONTRIBUTING.md and docs/ are understood: options, keys and groups exist, values fit.

Nothing is trained or translated: configurations are composed and checked, command lines parsed by the real parsers.
"""

import argparse
import itertools
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra._internal.utils import get_args_parser

from nmt import datastore, doctor, export, share, translate
from nmt.models.build import check_model
from nmt.models.decoder import DECODERS
from nmt.training.prepare import check_run
from tests.composing import compose
from tests.runs import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
START = r"(?:python |torchrun (?:--\S+\s+)+)(?:-m nmt\.|scripts/)"
COMMAND = re.compile(START + r"(\w+)(?:\.py)?(.*)")

# Files and folders may be called anything; these stand for what has to be one of several.
PLACEHOLDERS = {"P": "int8", "B": "5", "S": "general", "...": ""}
ABRIDGED: set[tuple[str, ...]] = set()  # commands that leave something to the reader
ENDS = ("|", "&&", ";", "#")


def commands(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield (program, arguments) of the commands of a page: of its code blocks, and those in a line of text."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ").replace("\\|", "|")
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)  # output and code
    block = "\n".join(re.findall(r"^    (.*)$", text, flags=re.MULTILINE))
    lines = re.sub(r"^    .*$", "", text, flags=re.MULTILINE)
    variables = dict(re.findall(r"^(\w+)=\"(.*)\"$", block, flags=re.MULTILINE))
    for name, value in variables.items():
        block = re.sub(rf"^{name}=.*$", "", block, flags=re.MULTILINE).replace(f"${name}", value)
    for command in (*block.split("\n"), *(" ".join(code.split()) for code in re.findall(r"`([^`]+)`", lines))):
        if found := COMMAND.search(command):
            if "..." in found[2] or "$" in found[2]:
                ABRIDGED.add(tuple(arguments(found[2])))
            yield found[1], arguments(found[2])


def arguments(line: str) -> list[str]:
    words = itertools.takewhile(lambda word: word not in ENDS, shlex.split(line))
    found = []
    for word in words:
        name, equals, value = word.rpartition("=")
        found.append(name + equals + PLACEHOLDERS.get(value, value))
    return [word for word in found if word]


FOUND = [(page.name, *command) for page in PAGES for command in commands(page)]


def of(*programs: str) -> Any:
    chosen = [command for command in FOUND if command[1] in programs]
    return pytest.mark.parametrize(("page", "program", "line"), chosen, ids=lambda part: str(part)[:60])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_command_is_overlooked(page: Path) -> None:
    written = re.findall(rf"{START}\w", page.read_text(encoding="utf-8"))
    assert sum(command[0] == page.name for command in FOUND) >= len(written)


@pytest.mark.parametrize(
    ("page", "program", "some"),
    [
        ("README.md", "translate", {"--show-alignment", "The women did not eat them."}),
        ("guide.md", "train", {"data=hub", "data.hub.data_files={train:F,validation:F}"}),
        ("guide.md", "train", {"data=text", "data.train.source=F", "data.train.target=F"}),
        ("results.md", "benchmark", {"data.train.source=train.en", "tokenizer.source_model=vocab.txt"}),
        ("guide.md", "benchmark", {"data.train.source=train.en", "model=gnmt", "batch.size=8192"}),
        ("results.md", "study_attention", {"--standard", "global", "--scores", "sparsemax"}),
    ],
)
def test_a_command_is_read_as_the_shell_reads_it(page: str, program: str, some: set[str]) -> None:
    assert any((page, program) == command[:2] and some <= set(command[2]) for command in FOUND)


@of("train", "evaluate", "serve")
def test_a_configuration_composes(page: str, program: str, line: list[str]) -> None:
    given = get_args_parser().parse_args(line)
    values = [override.partition("=")[::2] for override in given.overrides]
    choices = [
        [f"{name}={value}" for value in (text.split(",") if given.multirun else [text])] for name, text in values
    ]
    for overrides in itertools.product(*choices):
        config = compose(program, *overrides)
        if program == "train":
            check_model(config.model, joint=config.tokenizer.joint)
            DECODERS[config.model.decoder].check_ignored_settings(config.model)
            if config.data.kind != "hub" and tuple(line) not in ABRIDGED:  # the hub would be asked for its splits
                check_run(config)


@of("translate")
def test_a_translation_is_understood(page: str, program: str, line: list[str]) -> None:
    if "--help" not in line:
        translate.build_parser().parse_args(line)


@of("doctor")
def test_a_check_is_understood(page: str, program: str, line: list[str]) -> None:
    doctor.parser().parse_args(line)


@of("share")
def test_sharing_is_understood(page: str, program: str, line: list[str]) -> None:
    share.build_parser().parse_args(line)


@of("datastore")
def test_a_datastore_is_understood(page: str, program: str, line: list[str]) -> None:
    datastore.build_parser().parse_args(line)


@of("export")
def test_an_export_is_understood(page: str, program: str, line: list[str]) -> None:
    export.build_parser().parse_args(line)


class ParsedError(Exception):
    """Raised in the place of a script's work, with the options it parsed."""


@pytest.fixture
def understood(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, list[str]], argparse.Namespace]:
    """Let a script parse a command line, and stop it there."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    for method in ("parse_args", "parse_intermixed_args"):
        parse = getattr(argparse.ArgumentParser, method)
        monkeypatch.setattr(argparse.ArgumentParser, method, stopping(parse))

    def run(program: str, line: list[str]) -> argparse.Namespace:
        monkeypatch.setattr(sys, "argv", [f"{program}.py", *line])
        with pytest.raises(ParsedError) as parsed:
            runpy.run_path(str(ROOT / "scripts" / f"{program}.py"), run_name="__main__")
        options: argparse.Namespace = parsed.value.args[0]
        return options

    return run


def stopping(parse: Callable[..., argparse.Namespace]) -> Callable[..., argparse.Namespace]:
    def parse_and_stop(parser: argparse.ArgumentParser, *given: Any) -> argparse.Namespace:
        raise ParsedError(parse(parser, *given))

    return parse_and_stop


WITHOUT_OPTIONS = {"write_api_docs", "write_configuration_docs"}
COMMANDS = {"train", "translate", "evaluate", "serve", "export", "share", "datastore", "doctor"}
SCRIPTS = {command[1] for command in FOUND} - COMMANDS - WITHOUT_OPTIONS


@of(*SCRIPTS)
def test_a_script_understands_its_options(page: str, program: str, line: list[str], understood: Any) -> None:
    options = understood(program, line)
    compose("train", *getattr(options, "overrides", ()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_scripts_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(r"\bscripts/(\w+)\.py", page.read_text(encoding="utf-8"))
    named += re.findall(r"`(study_\w+)\.py`", page.read_text(encoding="utf-8"))
    assert not [name for name in named if not (ROOT / "scripts" / f"{name}.py").is_file()]


def test_a_wrong_option_is_noticed(understood: Any, capfd: pytest.CaptureFixture[str]) -> None:
    for program, line in (("study_attention", ["--scors", "dot"]), ("benchmark", ["train", "--precision", "P"])):
        with pytest.raises(SystemExit):
            understood(program, line)
    with pytest.raises(Exception, match="no_such_key"):
        compose("train", "trainer.no_such_key=1")
