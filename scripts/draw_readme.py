"""Draw the pictures of README from a run: its attention, report, page and TensorBoard, as a browser shows them.

    PYTHONPATH=. python scripts/draw_readme.py RUN

RUN is a run on the built-in corpus. It needs `pip install -e '.[test]'` and Chromium.
"""

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from nmt import Translator
from nmt.cli import user_errors
from nmt.errors import write_errors
from nmt.view.heatmap import draw_heatmap, save_png
from tests.browser import Browser, started

SENTENCE = "They will believe that the white cat sleeps next to her tired hen."
COLORS = 128  # of a picture


def draw_attention(run: str, path: Path) -> None:
    """Draw the heatmap of a translation."""
    translation = Translator.load(run, device="cpu").translate(SENTENCE)
    save_png(draw_heatmap(translation.weights, translation.source_words, translation.target_words), path)


def draw_report(run: str, path: Path, browser: Browser) -> None:
    """Draw two parts of the report of the test split, one below the other: scores, and a sentence that is open."""
    browser.show(1200, 410)
    browser.open((Path(run) / "evaluation" / "test" / "report.html").resolve().as_uri())
    with tempfile.TemporaryDirectory() as folder:
        parts = [Path(folder) / f"{n}.png" for n in range(2)]
        browser.screenshot(parts[0], whole=False)
        browser.show(1200, 560)
        browser.click(".sentences tbody tr:nth-child(1)")
        browser.wait("document.querySelector('.sentences .nmt-cell')")
        browser.run("document.querySelector('.sentences').scrollIntoView()")
        time.sleep(1)
        browser.screenshot(parts[1], whole=False)
        images = [Image.open(part).convert("RGB") for part in parts]
    picture = Image.new("RGB", (images[0].width, sum(image.height for image in images)))
    picture.paste(images[0], (0, 0))
    picture.paste(images[1], (0, images[0].height))
    picture.save(path)


def draw_page(run: str, path: Path, browser: Browser) -> None:
    """Draw the page, with a sentence typed and a word pointed at."""
    line = [sys.executable, "-m", "nmt.serve", f"checkpoint={run}", "port=0", "device=cpu"]
    with serving(line, r"(http://\S+) \(Ctrl-C") as address:
        browser.show(1200, 620)
        browser.open(address)
        browser.wait("document.querySelector('textarea')")
        browser.click("textarea")
        browser.type(SENTENCE)
        browser.wait("document.querySelectorAll('.nmt-cell').length > 10")
        time.sleep(2)
        browser.hover(".nmt-target .nmt-word:nth-child(5)")
        time.sleep(1)
        browser.screenshot(path, whole=False)


def draw_tensorboard(run: str, path: Path, browser: Browser) -> None:
    """Draw TensorBoard's tab of images."""
    line = [sys.executable, "-m", "tensorboard.main", "--logdir", run, "--port", "0"]
    with serving(line, r"at (http://\S+) \(Press") as address:
        browser.show(1500, 760)
        browser.open(f"{address}#images")
        time.sleep(10)
        browser.screenshot(path, whole=False)


@contextlib.contextmanager
def serving(line: list[str], ready: str) -> Iterator[str]:
    """Run a command that serves; yield its address, which `ready` finds in what it prints."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(line, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            match = next(filter(None, (re.search(ready, text) for text in process.stdout)))
            yield match[1]
        finally:
            process.terminate()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="folder of a run on the built-in corpus")
    parser.add_argument(
        "--output", type=Path, default=Path("docs"), metavar="DIR", help="of the pictures (%(default)s)"
    )
    options = parser.parse_args()
    names = ("heatmap", "report", "page", "tensorboard")
    heatmap, report, page, tensorboard = paths = [options.output / f"{name}.png" for name in names]
    with user_errors():
        with write_errors(options.output):
            options.output.mkdir(parents=True, exist_ok=True)
        draw_attention(options.run, heatmap)
        with started() as browser:
            draw_report(options.run, report, browser)
            draw_page(options.run, page, browser)
            draw_tensorboard(options.run, tensorboard, browser)
        for path in paths:
            with Image.open(path) as image:
                image.convert("RGB").quantize(COLORS).save(path, optimize=True)


if __name__ == "__main__":
    main()
