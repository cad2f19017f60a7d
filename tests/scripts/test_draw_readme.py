"""The pictures of README."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image


@pytest.mark.slow
def test_the_pictures(tiny_run: Path, tmp_path: Path, call: Callable[..., int]) -> None:
    """Half a minute, most of it TensorBoard's: `python -m pytest -m slow tests/scripts/test_draw_readme.py`."""
    assert call("draw_readme", str(tiny_run), "--output", str(tmp_path)) == 0
    sizes = {path.name: Image.open(path).size for path in tmp_path.glob("*.png")}
    assert {name: size for name, size in sizes.items() if name != "heatmap.png"} == {
        "page.png": (1200, 620),
        "report.png": (1200, 970),
        "tensorboard.png": (1500, 760),
    }
    assert "heatmap.png" in sizes
    for name in sizes:
        assert len(Image.open(tmp_path / name).convert("RGB").getcolors(10**6) or []) > 10, f"{name} is blank"
