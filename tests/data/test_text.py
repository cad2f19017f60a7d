import gzip
import itertools
import math
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config.schema import DataConfig, SplitConfig
from nmt.data import text
from nmt.data.corpus import load_split
from nmt.data.text import TextFile, open_split, read_split
from nmt.errors import UserError
from tests.messages import error_message

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def write(path: Path, content: str | bytes) -> str:
    content = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return str(path)


def read(
    tmp_path: Path, source: str | bytes, target: str | bytes, alignment: str | None = None
) -> dict[str, list[str]]:
    config = SplitConfig(source=write(tmp_path / "a.en", source), target=write(tmp_path / "a.de", target))
    if alignment is not None:
        config.alignment = write(tmp_path / "a.links", alignment)
    return lines_of(config)


def lines_of(config: SplitConfig, ratio: float = math.inf) -> dict[str, list[str]]:
    tables = list(read_split(open_split(config, "train", ratio)))
    return pa.concat_tables(tables).to_pydict() if tables else {}


def read_file(path: Path, content: bytes, ratio: float = math.inf) -> list[str]:
    path.write_bytes(content)
    return list(itertools.chain.from_iterable(TextFile(path, ratio).blocks()))


def complaint(tmp_path: Path, source: str | bytes, target: str | bytes, alignment: str | None = None) -> str:
    return error_message(read, tmp_path, source, target, alignment)


def varied(count: int) -> list[str]:
    """Lines whose lengths jump about, as those of text do."""
    return [" ".join(WORDS[: 1 + (7 * i * i + 3 * i) % 11]) for i in range(count)]


def joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\n", ["a", ""]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\r\n", ["a\r"]),
        (b"a\rb\n", ["a\rb"]),
        ("a\u2028b\x0cc\x85d\x1ce\n".encode(), ["a\u2028b\x0cc\x85d\x1ce"]),
        (b"\xef\xbb\xbfa\n", ["a"]),
        (b"  a \n", ["  a "]),
    ],
)
@pytest.mark.parametrize("block", [1, 2, 3, 1 << 20])
def test_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, lines: list[str], block: int) -> None:
    monkeypatch.setattr(text, "BLOCK", block)
    assert read_file(tmp_path / "x", content) == lines
    assert read_file(tmp_path / "x.gz", gzip.compress(content, mtime=0)) == lines


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\ufeff"))))
def test_lines_come_back_as_written(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    assert read_file(tmp_path_factory.getbasetemp() / "written", joined(lines).encode()) == lines


def test_files_plain_gzipped_and_many(tmp_path: Path) -> None:
    config = SplitConfig(
        source=[write(tmp_path / "a.en", "a\nb"), write(tmp_path / "b.en.gz", "c\n")],
        target=(write(tmp_path / "a.de.gz", "A\nB\n"), write(tmp_path / "b.de", "C")),
    )
    assert lines_of(config) == {"source": ["a", "b", "c"], "target": ["A", "B", "C"]}


def test_pipes_are_read_once(tmp_path: Path) -> None:
    ends = []
    for content in ("a b\nc\n", "x\ny z\n"):
        out, into = os.pipe()
        os.write(into, content.encode())
        os.close(into)
        ends.append(out)
    train = SplitConfig(source=f"/dev/fd/{ends[0]}", target=f"/dev/fd/{ends[1]}")
    found = load_split(DataConfig(kind="text", train=train, cache_dir=str(tmp_path)), "train")
    assert found[:] == {"source": ["a b", "c"], "target": ["x", "y z"]}
    for end in ends:
        os.close(end)


def test_a_file_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = SplitConfig(source=write(tmp_path / "a.en", "a\nb\n"), target=write(tmp_path / "a.de", "x\ny\n"))

    def changing(files: Any) -> Any:
        (tmp_path / "a.en").write_text("a\nb, and more\n")
        return read_split(files)

    monkeypatch.setattr(text, "read_split", changing)
    with pytest.raises(UserError, match=r"a\.en was changed while it was read"):
        load_split(DataConfig(kind="text", train=train, cache_dir=str(tmp_path / "cache")), "train")
    assert not list((tmp_path / "cache").glob("*.arrow"))


def test_alignment(tmp_path: Path) -> None:
    lines = read(tmp_path, "a b\nc\n\n", "A B\nC\n\n", "0-0 1?1\n0-0\n\n")
    assert lines["alignment"] == ["0-0 1?1", "0-0", ""]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (SplitConfig(), "no files for the test split: set data.test.source=FILE and data.test.target=FILE"),
        (SplitConfig(source="x"), "set data.test.target=FILE"),
        (SplitConfig(source=3, target="x"), "data.test.source=3 must be a file or a list of files"),
        (SplitConfig(source=["x", 3], target="x"), "data.test.source=.* must be a file or a list of files"),
        (SplitConfig(source="/none.en", target="/none.de"), "data.test.source: no such file: /none.en"),
    ],
)
def test_wrong_keys(config: SplitConfig, message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_split(config, "test")


def test_folder_and_unequal_lists(tmp_path: Path) -> None:
    file = write(tmp_path / "a.en", "a\n")
    with pytest.raises(UserError, match=f"data.train.target: {tmp_path} is a folder"):
        open_split(SplitConfig(source=file, target=str(tmp_path)), "train")
    with pytest.raises(UserError, match=r"data.train.source names 1 files but data.train.target 2"):
        open_split(SplitConfig(source=file, target=[file, file]), "train")


def test_not_utf8(tmp_path: Path) -> None:
    message = complaint(tmp_path, "a\nb\nc\n", b"x\nyz \xe9t\xe9\nz\n")
    assert f"{tmp_path}/a.de is not UTF-8: line 2, byte 4 of the line (byte 6 of the text) is 0xe9" in message
    marked = {"a\n".encode("utf-16"): "UTF-16", "\ufeffa\n".encode("utf-16-be"): "UTF-16"}
    for content, encoding in (marked | {b"a\0b\0\n\0": "UTF-16LE", b"\0a\0\n": "UTF-16BE"}).items():
        told = complaint(tmp_path, "a\n", content)
        assert f"a.de is not UTF-8 but UTF-16: convert it, with iconv -f {encoding} -t UTF-8" in told


@pytest.mark.parametrize(
    "content",
    [
        b"plain text",
        b"",
        gzip.compress(b"abc" * 100, mtime=0)[:-12],
        gzip.compress(b"abc" * 100, mtime=0)[:15] + b"\xff" * 30,
    ],
)
def test_corrupt_gzip(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UserError, match=r"x\.gz is not a readable gzip file") as caught:
        read_file(tmp_path / "x.gz", content)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("longer", "shorter"), [(10, 8), (3, 2), (200, 1), (5, 0)])
def test_line_counts_differ_by_a_cut(tmp_path: Path, longer: int, shorter: int) -> None:
    lines = varied(longer)
    message = complaint(tmp_path, joined(lines), joined(lines[:shorter]).upper())
    assert f"a.en has {longer} lines but {tmp_path}/a.de has {shorter}" in message
    assert f"line {shorter + 1} of {tmp_path}/a.en is the first without a counterpart" in message


@pytest.mark.parametrize("dropped", [0, 1, 57, 150])
@pytest.mark.parametrize("side", ["source", "target"])
def test_line_counts_differ_by_a_gap(tmp_path: Path, dropped: int, side: str) -> None:
    whole = varied(200)
    short = whole[:dropped] + whole[dropped + 1 :]
    message = complaint(
        tmp_path, joined(short if side == "source" else whole), joined(whole if side == "source" else short)
    )
    assert {"199", "200"} < set(message.replace(":", "").split())
    assert f"they seem to fall out of step at line {dropped + 1}" in message


def test_line_counts_differ_and_one_side_is_empty(tmp_path: Path) -> None:
    message = complaint(tmp_path, "a\n\nb\nc\n", "a\nx\nb\n")
    assert message.endswith("they seem to fall out of step at line 2")


def test_the_files_out_of_step_are_named(tmp_path: Path) -> None:
    files = {
        name: write(tmp_path / name, "a\n" * count)
        for name, count in [("1.en", 1), ("1.de", 1), ("2.en", 1), ("2.de", 2)]
    }
    config = SplitConfig(source=[files["1.en"], files["2.en"]], target=[files["1.de"], files["2.de"]])
    with pytest.raises(UserError, match=r"2\.en has 1 lines but .*2\.de has 2: line 2 of .*2\.de is the first without"):
        lines_of(config)


@pytest.mark.parametrize(
    ("alignment", "message"),
    [
        ("0-0\n0-1\n", "a.links, line 2: link 0-1 points outside the pair, which has 2 source and 1 target words"),
        ("0-0\n2-0\n", "a.links, line 2: link 2-0 points outside the pair, which has 2 source and 1 target words"),
        ("0-0\n0:0\n", "a.links, line 2: '0:0' is not an alignment link"),
        ("0-0 -1-0\n\n", "a.links, line 1: '-1-0' is not an alignment link"),
        ("0-0\n", "a.links has 1 lines but {}/a.en has 2: line 2 is the first without a counterpart"),
        ("0-0\n0-0\n\n", "a.links has 3 lines but {}/a.en has 2: line 3 is the first without a counterpart"),
    ],
)
def test_wrong_alignment(tmp_path: Path, alignment: str, message: str) -> None:
    assert message.format(tmp_path) in complaint(tmp_path, "a\nb c\n", "A\nB\n", alignment)


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    bomb = gzip.compress((b"a" * 99 + b"\n") * 2_400_000, mtime=0)
    path = tmp_path / "train.en.gz"
    path.write_bytes(bomb)
    config = SplitConfig(source=str(path), target=str(path))
    tracemalloc.start()
    with pytest.raises(UserError, match=r"train\.en\.gz becomes more than 100 times as large .* data\.max_gzip_ratio"):
        lines_of(config, 100.0)
    assert tracemalloc.get_traced_memory()[1] < 200 * len(bomb)  # all of it would be 1,000 times
    tracemalloc.stop()
    small = gzip.compress(b"a b c\n" * 100_000, mtime=0)
    assert len(read_file(path, small, 100.0)) == 100_000


def test_a_byte_order_mark_is_left_out_at_the_beginning_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "BLOCK", 8)
    (tmp_path / "file").write_bytes("\ufeffa b\n\ufeffc d\n".encode())
    assert [line for block in TextFile(tmp_path / "file").blocks() for line in block] == ["a b", "\ufeffc d"]
