import contextlib
import multiprocessing
import re
import time
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data import tables
from nmt.data.tables import ProgressLog, mapped_table, source_code, stored_table
from nmt.errors import UserError

TABLE = pa.table({"n": [1, 2, 3]})


def test_a_table_is_built_once_and_nothing_else_is_left(tmp_path: Path) -> None:
    built = []

    def build(folder: Path) -> list[pa.Table]:
        built.append(folder)
        return [TABLE]

    for _ in range(2):
        assert mapped_table(stored_table(tmp_path / "deep" / "table.arrow", build)) == TABLE
    assert len(built) == 1
    assert not built[0].exists()
    assert {file.name for file in (tmp_path / "deep").iterdir()} == {"table.arrow", "table.arrow.sha256"}


@given(name=st.sampled_from(["table.arrow", "table.arrow.sha256"]), data=st.data())
def test_a_table_with_a_flipped_bit_or_cut_short_is_made_anew(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    path = stored_table(tmp_path_factory.mktemp("cache") / "table.arrow", build_table)
    before = {file: file.read_bytes() for file in path.parent.iterdir()}
    content = bytearray(before[path.with_name(name)])
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.with_name(name).write_bytes(content[: data.draw(st.sampled_from([None, 0, len(content) // 2]))])
    assert mapped_table(stored_table(path, build_table)) == TABLE
    assert {file: file.read_bytes() for file in path.parent.iterdir()} == before


def test_a_damaged_table_is_named_and_one_without_a_digest_is_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = stored_table(tmp_path / "table.arrow", build_table)
    path.write_bytes(b"")
    with caplog.at_level("WARNING", logger="nmt.data.tables"):
        stored_table(path, build_table)
        assert caplog.messages == [f"{path} is damaged and is rebuilt"]
        (tmp_path / "table.arrow.sha256").unlink()
        path.write_bytes(b"")
        assert mapped_table(stored_table(path, build_table)) == TABLE


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def build(folder: Path) -> list[pa.Table]:
        (folder / "half").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stored_table(tmp_path / "table.arrow", build)
    assert not list(tmp_path.iterdir())


def test_processes_may_store_at_once(tmp_path: Path) -> None:
    path = tmp_path / "table.arrow"
    with multiprocessing.get_context("fork").Pool(4) as pool:
        paths = pool.starmap(stored_table, [(path, build_table)] * 40, chunksize=1)
    assert set(paths) == {path}
    assert mapped_table(path) == TABLE
    assert {file.name for file in tmp_path.iterdir()} == {"table.arrow", "table.arrow.sha256"}


def test_the_source_code_of_a_file_and_a_folder(tmp_path: Path) -> None:
    for name, content in (("b.py", "2"), ("a.py", "1"), ("words.toml", "3"), ("notes.txt", "4")):
        (tmp_path / name).write_text(content)
    (tmp_path / "__pycache__").mkdir()
    assert source_code(tmp_path) == b"123"
    assert source_code(tmp_path / "b.py") == b"2"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*choose another folder with data.cache_dir"):
        stored_table(tmp_path / "file" / "table.arrow", build_table)


def test_the_end_of_short_or_failed_work_is_not_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ProgressLog, "last_message", time.monotonic())
    with caplog.at_level("INFO", logger="nmt.data.tables"):
        with ProgressLog("encoding"):
            pass
        with contextlib.suppress(KeyError), ProgressLog("encoding") as progress:
            progress._started -= 60
            raise KeyError
    assert not caplog.messages


def test_short_works_are_not_silent_together(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The last message was long ago, so this work is told of at once."""
    monkeypatch.setattr(tables, "MIN_LOGGED_SECONDS", 0.01)
    monkeypatch.setattr(ProgressLog, "last_message", time.monotonic() - tables.INTERVAL)
    with caplog.at_level("INFO", logger="nmt.data.tables"):
        with ProgressLog("reading"):
            while not caplog.messages:
                time.sleep(0.01)
        with ProgressLog("cleaning"):
            time.sleep(0.1)
    assert caplog.messages == ["reading: 0 s"]


def build_table(folder: Path) -> list[pa.Table]:
    return [TABLE.slice(0, 1), TABLE.slice(1)]


def test_progress_tells_what_is_done_and_how_long_it_will_take(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tables, "INTERVAL", 0.05)
    monkeypatch.setattr(tables, "MIN_LOGGED_SECONDS", 0.01)
    with caplog.at_level("INFO", logger="nmt.data.tables"), ProgressLog("encoding", 1_000) as progress:
        while not caplog.messages:
            time.sleep(0.01)
        progress.add(400)
        while not caplog.messages[-1].startswith("encoding: 400 of 1,000 pairs, "):
            time.sleep(0.01)
        progress.add(600)
    assert caplog.messages[0] == "encoding: 0 s"
    left = r"encoding: 400 of 1,000 pairs, [\d,]+ a second, 0:0\d left"
    assert any(re.fullmatch(left, message) for message in caplog.messages)
    assert re.fullmatch(r"encoding: done, 1,000 pairs, [\d,]+ a second", caplog.messages[-1])
    told = len(caplog.messages)
    time.sleep(0.2)
    assert len(caplog.messages) == told
