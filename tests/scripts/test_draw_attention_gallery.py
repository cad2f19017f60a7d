"""The gallery of the documentation: its pictures and its section of the page."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runs import ROOT


def test_gallery(attention_study: Path, call: Callable[..., int], capfd: pytest.CaptureFixture[str]) -> None:
    page = attention_study / "attention.md"
    text = (ROOT / "docs/attention.md").read_text(encoding="utf-8")
    page.write_text(text, encoding="utf-8")
    runs = attention_study / "outputs/study_attention/runs"
    arguments = ("--page", str(page), "--runs", str(runs), "--run", f"dots={runs / 'dot-sparsemax-global'}")
    assert call("draw_attention_gallery", *arguments, cwd=attention_study) == 0
    assert "no run of additive-softmax-global" in capfd.readouterr().err
    pictures = {file.name: file.stat().st_size for file in (attention_study / "attention").iterdir()}
    assert pictures.keys() == {"additive-sparsemax-global.png", "dots.png"}
    assert max(pictures.values()) < 12_000
    drawn = page.read_text(encoding="utf-8")
    assert "(attention/dots.png)" in drawn
    assert "Not drawn yet" not in drawn
    before, after = text.split("<!-- gallery")[0], text.split("<!-- end of gallery -->")[1]
    assert drawn.startswith(before)
    assert drawn.endswith(after)
    assert call("draw_attention_gallery", *arguments, cwd=attention_study) == 0
    assert page.read_text(encoding="utf-8") == drawn
    begin, end = (re.search(f"<!-- {name}.*-->", drawn)[0] for name in ("gallery", "end of gallery"))
    page.write_text(f"{end}\n{begin}\nthe rest", encoding="utf-8")
    assert call("draw_attention_gallery", *arguments, cwd=attention_study) == 2
    assert page.read_text(encoding="utf-8").endswith("the rest")
