"""The documentation speaks of what is there."""

import doctest
import re
from pathlib import Path

import pytest

from nmt.attention.coverage import COVERAGES
from nmt.attention.normalizers import NORMALIZERS
from nmt.attention.scores import SCORES
from nmt.attention.windows import WINDOWS

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
ATTENTION = ROOT / "docs" / "attention.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_linked_files_and_pictures_exist(page: Path) -> None:
    prose = re.sub(r"^    .*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose)
    missing = [target for target in targets if "://" not in target and not (page.parent / target).is_file()]
    assert not missing


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
