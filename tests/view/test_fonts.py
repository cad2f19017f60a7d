"""Fonts are chosen by what is installed now, and what is missing is told."""

import logging
from pathlib import Path

import pytest
from matplotlib import font_manager

from nmt.view import fonts
from nmt.view.fonts import fonts_for, glyphs

FOLDER = Path(font_manager.findfont("DejaVu Sans")).parent  # of the fonts that come with matplotlib
CAT, KA = "猫", "क"


@pytest.fixture(autouse=True)
def only_dejavu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which matplotlib has found DejaVu Sans alone, and where nothing has been installed since."""
    entries = [entry for entry in font_manager.fontManager.ttflist if entry.name in ("DejaVu Sans", "Last Resort")]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", entries)
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    monkeypatch.setattr(fonts, "_reported", set())


def test_what_the_first_font_has_needs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    assert fonts_for(["the cat", "Кот", "القط", "", "\u200d\x00"]) == ["DejaVu Sans"]
    assert fonts_for([]) == ["DejaVu Sans"]
    assert caplog.records == []


def test_a_font_that_was_installed_after_matplotlib_looked_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new = FOLDER / "STIXGeneral.ttf"
    character = min(c for c in glyphs(str(new)) - glyphs(str(FOLDER / "DejaVuSans.ttf")) if c.isalpha())
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(tmp_path / "broken.ttf"), str(new)])
    assert fonts_for([f"a{character}"]) == ["DejaVu Sans", "STIXGeneral"]
    assert caplog.records == []


def test_a_font_that_was_removed_is_not_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = font_manager.FontEntry(fname=str(tmp_path / "gone.ttf"), name="Noto Sans CJK SC")
    font_manager.fontManager.ttflist.append(gone)
    assert fonts_for([CAT]) == ["DejaVu Sans"]


def test_the_package_of_a_script_without_a_font_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert fonts_for(["the", CAT]) == ["DejaVu Sans"]
        fonts_for([CAT])
        fonts_for(["犬"])  # of the same package
        fonts_for([KA])
    first, second = [record.getMessage() for record in caplog.records]
    assert "猫 (cjk). Install fonts-noto-cjk" in first
    assert "क (devanagari). Install fonts-noto-core" in second


def test_symbols_and_punctuation_are_of_no_script(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        fonts_for(["\U0001f415\U0001f389", "。"])
    assert "(punctuation, symbols). Install" in caplog.records[0].getMessage()


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("猫", "Noto Sans CJK SC"),
        ("猫はランプ", "Noto Sans CJK JP"),
        ("한국", "Noto Sans CJK KR"),
        ("हिंदी", "Noto Sans Devanagari"),
        ("ไทย", "Noto Sans Thai"),
        ("ខ្មែរ", "Noto Sans Khmer"),
    ],
)
def test_the_font_made_for_a_script_comes_first(text: str, first: str) -> None:
    assert fonts.preferred(text)[0] == first
