"""One bit of any file of a run or of its cache is flipped: nothing is silently wrong.

Each time the run is asked for translations, and goes on with training: both do what they do undamaged, or refuse with
one line. The long form, 200 flips: `python -m pytest -m chaos tests/chaos`.
"""

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.whole import Whole, weights
from tests.processes import Zygote

SENTENCES = ["He sleeps.", "She helps her brother.", "The sister of Luc sees me."]
MORE = ["trainer.max_steps=14", "trainer.validate_every_steps=7"]


class Copies:
    """Copies of a run and its cache, and what is made of them."""

    def __init__(self, zygote: Zygote, whole: Whole, place: Path) -> None:
        self.zygote = zygote
        self.whole = whole
        self.place = place
        self.restore()
        self.files = [path.relative_to(place) for path in place.rglob("*") if path.is_file() and path.name != ".lock"]
        assert len(self.files) > 20
        self.translations = self.translate().output
        assert self.translations.count("\n") == len(SENTENCES)
        assert self.go_on().status == 0
        self.weights = weights(place / "run")

    def restore(self) -> None:
        """Copy the run and the cache."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.whole.folder, self.place / "run")
        shutil.copytree(self.whole.folder.parent / "cache", self.place / "cache")

    def translate(self):
        return self.zygote.run("translate", "--checkpoint", "run", "--device", "cpu", *SENTENCES, cwd=self.place)

    def go_on(self):
        options = [each for each in self.whole.options if not each.startswith("data.cache_dir=")]
        return self.zygote.run("train", "run_dir=run", *options, *MORE, "data.cache_dir=cache", cwd=self.place)

    def check_flip(self, file: Path, generator: random.Random) -> str:
        """Flip a bit of a file; return what came of it."""
        self.restore()
        content = bytearray((self.place / file).read_bytes())
        where = generator.randrange(len(content)) if content else 0
        content[where : where + 1] = bytes([content[where] ^ 1 << generator.randrange(8)]) if content else b"x"
        (self.place / file).write_bytes(content)
        told = f"{file} byte {where}"
        found = self.translate()
        assert found.is_refusal or (found.status, found.output) == (0, self.translations), f"{told}: {found}"
        trained = self.go_on()
        assert trained.is_refusal or trained.status == 0, f"{told}: {trained}"
        assert not trained.has_traceback, f"{told}: {trained}"
        if trained.status == 0:
            assert weights(self.place / "run") == self.weights, f"{told}: other weights"
        if found.is_refusal or trained.is_refusal:
            return "refused"
        return "is rebuilt" if "is rebuilt" in trained.errors else "harmless"


def test_flips(zygote: Zygote, whole: Whole, tmp_path: Path) -> None:
    """The short form: one flip in each of six kinds of files."""
    copies = Copies(zygote, whole, tmp_path / "copies")
    generator = random.Random(1)
    chosen = {file.name.split("-")[0] + file.suffix: file for file in copies.files}
    kinds = ["model.safetensors.safetensors", "training_state.pt.pt", "manifest.json.json", "metrics.jsonl.jsonl"]
    for kind in [*kinds, "encoded.arrow", "encoded.sha256"]:
        copies.check_flip(chosen[kind], generator)


@pytest.mark.chaos
def test_two_hundred_flips(zygote: Zygote, whole: Whole, tmp_path: Path) -> None:
    """About ten minutes: `python -m pytest -m chaos -s tests/chaos/test_flips.py`."""
    copies = Copies(zygote, whole, tmp_path / "copies")
    generator = random.Random(2)
    files = [copies.files[n % len(copies.files)] for n in range(200)]
    verdicts = Counter(copies.check_flip(file, generator) for file in files)
    print(dict(verdicts))
    assert verdicts["refused"] > 50
    assert verdicts["is rebuilt"] > 20
