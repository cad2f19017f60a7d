"""Choose installed fonts that have the characters of a heatmap, and name the package to install if none does.

matplotlib caches the list of fonts once. Fonts installed since then are searched when a text needs them.
"""

import functools
import logging
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

FIRST = "DejaVu Sans"  # comes with matplotlib; has Latin, Greek, Cyrillic, Arabic, Hebrew, Armenian, Georgian
EAST_ASIA = frozenset(
    ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC", "FULLWIDTH", "HALFWIDTH")
)
BOXES = "Last Resort"  # fonts whose glyph for every character is a box
REGULAR = 400  # weight
INVISIBLE = ("Cc", "Cf", "Mn")

logger = logging.getLogger(__name__)
_reported: set[str] = set()  # characters that no font has


def fonts_for(texts: Iterable[str]) -> list[str]:
    """Return the families that have the characters of texts, the first choice first; warn of those that none has."""
    visible = (c for text in texts for c in text if not (c.isspace() or unicodedata.category(c) in INVISIBLE))
    needed = set(visible) - _reported
    chosen, needed = choose_families(needed, [FIRST, *preferred(needed)])
    if needed:
        add_new_fonts()
        more, needed = choose_families(needed, [*preferred(needed), *sorted(installed_families())])
        chosen += more
    if needed:
        report_missing(needed)
    return chosen or [FIRST]


def choose_families(needed: set[str], names: Iterable[str]) -> tuple[list[str], set[str]]:
    """Return those of the families, in order, that have characters which the ones before lack, and what all lack."""
    installed, chosen = installed_families(), []
    for name in names:
        covered = needed & glyphs(installed[name]) if needed and name in installed else set()
        if covered:
            chosen.append(name)
            needed = needed - covered
    return chosen, needed


def preferred(needed: Iterable[str]) -> list[str]:
    """Return the families that are made for the scripts of the characters, installed or not."""
    scripts = {script_of(c) for c in needed}
    region_of_text = "KR" if "HANGUL" in scripts else "JP" if scripts & {"HIRAGANA", "KATAKANA"} else "SC"
    names = [f"Noto Sans CJK {region}" for region in (region_of_text, "SC", "JP")] if scripts & EAST_ASIA else []
    return names + [f"Noto Sans {script.title()}" for script in sorted(scripts - EAST_ASIA)]


def installed_families() -> dict[str, str]:
    """Return the families that matplotlib knows and whose files are still there, each with its most regular file."""
    entries = [entry for entry in font_manager.fontManager.ttflist if not entry.name.startswith(BOXES)]
    weights = font_manager.weight_dict  # of weights that are given by name

    def regularity(entry: font_manager.FontEntry) -> tuple[bool, int]:
        return entry.style == "normal", -abs(int(weights.get(str(entry.weight), entry.weight)) - REGULAR)

    return {entry.name: entry.fname for entry in sorted(entries, key=regularity) if Path(entry.fname).is_file()}


@functools.cache
def glyphs(path: str) -> frozenset[str]:
    """Return the characters of a font file."""
    return frozenset(chr(character) for character in FT2Font(path).get_charmap())


def add_new_fonts() -> None:
    """Add the installed fonts that are not in matplotlib's list, for this process."""
    listed = {entry.fname for entry in font_manager.fontManager.ttflist}
    for path in font_manager.findSystemFonts():
        if path not in listed:
            try:
                font_manager.fontManager.addfont(path)
            except (OSError, RuntimeError):  # no font that FreeType reads, or one of bitmaps
                continue


def script_of(character: str) -> str:
    """Return the script of a character: the first word of its name."""
    return unicodedata.name(character, "unnamed").split()[0]


def kind_of(character: str) -> str:
    """Return what a person calls characters like this one: its script, symbols or punctuation."""
    kinds = {"S": "symbols", "P": "punctuation"}
    return kinds.get(unicodedata.category(character)[0], script_of(character).lower())


def package_of(character: str) -> str:
    """Return the package of Debian and Ubuntu whose fonts have a character."""
    return "fonts-noto-cjk" if script_of(character) in EAST_ASIA else "fonts-noto-core"


def report_missing(characters: set[str]) -> None:
    """Warn that no font has these characters, unless the packages that have them were named before."""
    packages = set(map(package_of, characters))
    are_named = packages <= set(map(package_of, _reported))
    _reported.update(characters)
    if are_named:
        return
    logger.warning(
        "no installed font has these characters of heatmaps, which are drawn as boxes: %s (%s). Install %s (apt-get "
        "install, on Debian and Ubuntu), or put a font that has them into ~/.local/share/fonts",
        "".join(sorted(characters)[:8]),
        ", ".join(sorted(set(map(kind_of, characters)))),
        " and ".join(sorted(packages)),
    )
