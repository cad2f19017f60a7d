"""The documentation speaks of what is there."""

import doctest
import re
import runpy
from pathlib import Path

import pytest

import nmt
from nmt.attention.coverage import COVERAGES
from nmt.attention.normalizers import NORMALIZERS
from nmt.attention.scores import SCORES
from nmt.attention.windows import WINDOWS
from tests.runs import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
ATTENTION = ROOT / "docs" / "attention.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_linked_files_and_pictures_exist(page: Path) -> None:
    prose = re.sub(r"^    .*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose)
    missing = [target for target in targets if "://" not in target and not (page.parent / target).is_file()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_linked_headings_exist(page: Path) -> None:
    missing = []
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", read(page)):
        if "://" not in target and anchor not in anchors((page.parent / target) if target else page):
            missing.append(f"{target}#{anchor}")
    assert not missing


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", read(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_every_picture_of_the_gallery_is_shown() -> None:
    shown = re.findall(r"\((attention/[^)]+)\)", ATTENTION.read_text(encoding="utf-8"))
    drawn = [f"attention/{file.name}" for file in sorted((ROOT / "docs" / "attention").glob("*"))]
    assert sorted(shown) == drawn


def test_examples_of_attention_run() -> None:
    failed, tried = doctest.testfile(str(ATTENTION), module_relative=False, encoding="utf-8")
    assert (failed, tried > 5) == (0, True)


@pytest.mark.parametrize("name", [*SCORES, *NORMALIZERS, *WINDOWS, *COVERAGES[1:]])
def test_every_member_of_attention_is_described(name: str) -> None:
    assert f"`{name}`" in ATTENTION.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "longest"), [("README.md", 110), ("docs/architecture.md", 150), ("docs/results.md", 150)]
)
def test_a_page_stays_short(page: str, longest: int) -> None:
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= longest
    assert not [line for line in lines if len(line) > 120 and not line.startswith("|")]


def test_source_files_that_a_page_names_exist() -> None:
    named = re.findall(r"`((?:nmt|tests|scripts|configs)/[\w/]+\.\w+)`", "\n".join(map(read, PAGES)))
    assert "nmt/attention/scores.py" in named
    assert not [name for name in named if "NAME" not in name and not (ROOT / name).is_file()]


def test_the_api_is_current() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "write_api_docs.py"))
    assert read(ROOT / "docs" / "api.md") == script["render"](), "run: python scripts/write_api_docs.py"


def test_the_version_is_the_same_everywhere() -> None:
    assert f"\n## {nmt.__version__}\n" in read(ROOT / "CHANGELOG.md")
    assert f"\nversion: {nmt.__version__}\n" in read(ROOT / "CITATION.cff")


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")
