"""Write docs/api.md from signatures and docstrings: `python scripts/write_api_docs.py`.

The source is parsed, not imported, so that shapes stand as they are written.
"""

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "api.md"
WIDTH = 118

# The public face, then the seams that extensions meet.
MODULES = (
    *("translator", "errors", "text/tokenizer", "data/corpus", "data/batch"),
    *("attention/scores", "attention/normalizers", "attention/windows", "attention/attention"),
    *("models/encoder", "models/decoder", "models/seq2seq", "models/checkpoint", "training/objective"),
    *("search/hypothesis", "search/beam", "alignment/pharaoh", "alignment/links", "evaluation/registry"),
)

INTRODUCTION = """\
# API

Made from the code by `python scripts/write_api_docs.py`; a test keeps it current. Documented classes and functions of
the public face and of the seams where the project is extended, each with the first paragraph of its docstring.
"""


def render() -> str:
    """Return the text of docs/api.md."""
    return "\n".join([INTRODUCTION, *map(section, MODULES)])


def section(module: str) -> str:
    """Return a module's own docstring, and its documented classes and functions as a block of code."""
    tree = ast.parse((ROOT / "nmt" / f"{module}.py").read_text(encoding="utf-8"))
    members = "\n\n".join("\n".join(member(node)) for node in documented(tree.body))
    return f"## nmt.{module.replace('/', '.')}\n\n{summary(tree)}\n\n```python\n{members}\n```\n"


def documented(body: list[ast.stmt]) -> list[ast.ClassDef | ast.FunctionDef]:
    """Return the classes and functions that have a docstring and no leading underscore."""
    definitions = [node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    return [node for node in definitions if ast.get_docstring(node) and not node.name.startswith("_")]


def member(node: ast.ClassDef | ast.FunctionDef) -> Iterator[str]:
    """Yield the lines of a function, or of a class with its fields and methods."""
    if isinstance(node, ast.FunctionDef):
        result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        yield from textwrap.wrap(f"def {node.name}({ast.unparse(node.args)}){result}", WIDTH, subsequent_indent="    ")
        yield from comment(node)
        return
    bases = ", ".join(map(ast.unparse, node.bases))
    yield f"class {node.name}({bases})" if bases else f"class {node.name}"
    yield from comment(node)
    for field in node.body:
        if isinstance(field, ast.AnnAssign):
            yield f"    {ast.unparse(field)}"
    for method in documented(node.body):
        yield from (f"    {line}" for line in member(method))


def comment(node: ast.ClassDef | ast.FunctionDef) -> list[str]:
    """Return the first paragraph of a docstring as lines of a comment."""
    return textwrap.wrap(summary(node), WIDTH, initial_indent="    # ", subsequent_indent="    # ")


def summary(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> str:
    """Return the first paragraph of a docstring, in one line."""
    return " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
