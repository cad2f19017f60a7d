"""Shares, duplicates and the origin of every line."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diversification.teachers import BACKWARD, FORWARD, Teacher
from diversification.text import Text
from diversification.translating import Part
from diversification.writing import chosen, write
from nmt.config.schema import TrainConfig
from nmt.errors import UserError

WORDS = st.sampled_from(["a", "b", "c"])


def part(direction: str, number: int, translations: list[list[str]]) -> Part:
    return Part(Teacher(direction, number, ("run",), TrainConfig()), translations, {})


def read(folder: Path, *names: str) -> list[tuple[str, ...]]:
    return list(zip(*((folder / name).read_text(encoding="utf-8").split("\n")[:-1] for name in names), strict=True))


@settings(max_examples=40)
@given(
    pairs=st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=6),
    original=st.sampled_from([0.0, 0.5, 1.0, 2.5]),
    data=st.data(),
)
def test_every_line_is_where_it_says(pairs: list[tuple[str, str]], original: float, data: st.DataObject) -> None:
    translations = st.lists(
        st.lists(WORDS | st.just(""), min_size=1, max_size=2), min_size=len(pairs), max_size=len(pairs)
    )
    sources, targets = zip(*pairs, strict=True)
    text = Text(("x", "y"), sources, targets, [3 * n for n in range(len(pairs))])
    parts = [part(FORWARD, 1, data.draw(translations)), part(BACKWARD, 1, data.draw(translations))]
    with TemporaryDirectory() as name:
        folder = Path(name)
        shares = {"original": original, "forward": 1.0, "backward": 1.0}
        try:
            counts = write(text, parts, shares, 1, folder)
        except UserError:
            assert original < 1
            assert not list(folder.iterdir())
            return
        written = read(folder, "train.x", "train.y", "train.tsv")
    origins = [tuple(row[2].split("\t")) for row in written]
    forward, backward = parts[0].translations, parts[1].translations
    candidates = {
        "original": {(s, t, 3 * n) for n, (s, t) in enumerate(pairs)},
        "forward-1": {(s, y, 3 * n) for n, (s, _) in enumerate(pairs) for y in forward[n]},
        "backward-1": {(x, t, 3 * n) for n, (_, t) in enumerate(pairs) for x in backward[n]},
    }
    for (source, target, _), (origin, line) in zip(written, origins, strict=True):
        assert (source, target, int(line)) in candidates[origin]
    # Of the originals the share, whatever is equal among them.
    assert [int(line) for origin, line in origins if origin == "original"] == [
        3 * n for n in chosen(len(pairs), original, (1, 0))
    ]
    # Every synthetic pair once, unless it has an empty side or is among the originals that were written.
    kept = {row[:2] for row, origin in zip(written, origins, strict=True) if origin[0] == "original"}
    synthetic = [row[:2] for row, origin in zip(written, origins, strict=True) if origin[0] != "original"]
    made = {each[:2] for name in ("forward-1", "backward-1") for each in candidates[name] if all(each[:2])}
    assert sorted(synthetic) == sorted(made - kept)
    assert Counter(name for name, _ in origins) == Counter({each.name: each.written for each in counts})
    assert all(each.share == each.empty + each.duplicates + each.written for each in counts)


@given(number=st.integers(0, 30), share=st.floats(0, 3), seed=st.integers(0, 5))
def test_a_share_is_as_large_as_it_says(number: int, share: float, seed: int) -> None:
    found = Counter(chosen(number, share, (seed, 0)))
    assert abs(found.total() - share * number) <= 0.5 + 1e-9
    assert set(found) <= set(range(number))
    assert all(count - int(share) in (0, 1) for count in found.values())
    assert list(found) == sorted(found)
    assert found == Counter(chosen(number, share, (seed, 0)))


def test_other_seeds_choose_others() -> None:
    assert len({tuple(chosen(50, 0.5, (seed, 0))) for seed in range(5)}) == 5


def test_files_of_one_language_are_named_by_side(tmp_path: Path) -> None:
    write(Text(("x", "x"), ["a"], ["b"], [1]), [], {"original": 1.0}, 1, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"train.source", "train.target", "train.tsv"}


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    text = Text(("x", "y"), ["a"], ["b"], [1])
    write(text, [], {"original": 1.0}, 1, tmp_path)
    with pytest.raises(UserError, match="no pair is left"):
        write(text, [], {"original": 0.0}, 1, tmp_path)
    assert read(tmp_path, "train.x", "train.y", "train.tsv") == [("a", "b", "original\t1")]
    with pytest.raises(UserError, match="cannot write"):
        write(text, [], {"original": 1.0}, 1, tmp_path / "train.x" / "sub")
