"""The house of docs/architecture.md: imports point downwards only."""

import ast
import sys
from pathlib import Path

import pytest

from tests.runs import ROOT

PACKAGE = ROOT / "nmt"

# From the top down; parts of one line do not know each other. `nmt.cli` is what the entry points share.
LAYERS = [
    ["nmt.__main__"],
    [
        "nmt.train",
        "nmt.evaluate",
        "nmt.translate",
        "nmt.serve",
        "nmt.export",
        "nmt.share",
        "nmt.datastore",
        "nmt.doctor",
    ],
    ["nmt.cli"],
    ["nmt.training", "nmt.serving", "nmt.exporting"],
    ["nmt.evaluation"],
    ["nmt.translator"],
    ["nmt.translation"],
    ["nmt.view"],
    ["nmt.fast"],
    ["nmt.models"],
    ["nmt.data"],
    ["nmt.alignment"],
    ["nmt.attention", "nmt.search", "nmt.text"],
    ["nmt.config"],
    ["nmt.errors", "nmt.formats"],
]
LEVELS = {part: level for level, parts in enumerate(LAYERS) for part in parts}
FILES = sorted(PACKAGE.rglob("*.py"))


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(file: Path) -> set[str]:
    """Every module that a file imports, inside functions too; `from nmt.data import batch` counts as nmt.data.batch."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: relative import"
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name for name in submodules if is_module(name)} or {str(node.module)}
    return found


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def part_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


GRAPH = {module_name(file): {name for name in imports(file) if name.split(".")[0] == "nmt"} for file in FILES}


@pytest.mark.parametrize("module", [name for name in GRAPH if name != "nmt"])
def test_imports_point_downwards(module: str) -> None:
    here = part_of(module)
    assert here in LEVELS, f"{here} has no place in LAYERS"
    for imported in sorted(GRAPH[module]):
        there = part_of(imported)
        downwards = LEVELS.get(there, -1) > LEVELS[here] or there == here
        assert downwards, f"{module} may not import {imported}"


def test_layers_are_those_of_the_documentation() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = text.split("## Layers")[1].split("## ")[0].replace("|\n", "|")  # a layer may take two lines
    lines = [line for line in drawn.splitlines() if line.startswith("    ")]
    names = [[part.split("(")[0].strip().strip("/") for part in line.split("|")] for line in lines]
    documented = [[part.split(" ")[0].removesuffix(".py").replace("/", ".") for part in parts] for parts in names]
    assert documented == [parts for parts in LAYERS if parts != ["nmt.cli"]]


def test_there_is_no_cycle() -> None:
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module not in done:
            for imported in sorted(GRAPH.get(module, ())):
                visit(imported, (*path, module))
            done.add(module)

    # The root is left out: it imports the translator only when asked for it.
    for module in sorted(set(GRAPH) - {"nmt"}):
        visit(module, ())


@pytest.mark.parametrize("file", [file for file in FILES if file.name == "__init__.py"], ids=module_name)
def test_only_the_root_exports(file: Path) -> None:
    assert file.parent == PACKAGE or not file.read_text(encoding="utf-8").strip()


def test_every_package_has_an_init() -> None:
    folders = {file.parent for file in FILES}
    assert all((folder / "__init__.py").is_file() for folder in folders)


def test_attention_needs_torch_only() -> None:
    allowed = {"torch", "jaxtyping", "nmt.attention", "nmt.errors", *sys.stdlib_module_names}
    for file in (PACKAGE / "attention").glob("*.py"):
        for name in imports(file):
            root = part_of(name) if name.startswith("nmt") else name.split(".")[0]
            assert root in allowed, f"{file.name} imports {name}"


def test_tests_share_named_helpers() -> None:
    """Not another test's functions, nor those of a conftest."""
    for file in (ROOT / "tests").rglob("*.py"):
        names = {name.rsplit(".", 1)[-1] for name in imports(file) if name.startswith("tests.")}
        assert not {name for name in names if name == "conftest" or name.startswith("test_")}, file.name


def test_git_keeps_the_data_package() -> None:
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert not {"data", "data/", "data/*", "outputs", "outputs/"} & set(lines)
    assert {"/data/*", "/outputs/*"} <= set(lines)
