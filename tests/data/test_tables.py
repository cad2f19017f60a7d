import multiprocessing
from pathlib import Path

import pyarrow as pa
import pytest

from nmt.data.tables import mapped_table, stored_table
from nmt.errors import UserError

TABLE = pa.table({"n": [1, 2, 3]})


def test_a_table_is_built_once_and_nothing_else_is_left(tmp_path: Path) -> None:
    built = []

    def build(folder: Path) -> pa.Table:
        built.append(folder)
        return TABLE

    for _ in range(2):
        assert mapped_table(stored_table(tmp_path / "deep" / "table.arrow", build)) == TABLE
    assert len(built) == 1
    assert not built[0].exists()
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["table.arrow"]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def build(folder: Path) -> pa.Table:
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
    assert [file.name for file in tmp_path.iterdir()] == ["table.arrow"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*choose another folder with data.cache_dir"):
        stored_table(tmp_path / "file" / "table.arrow", build_table)


def build_table(folder: Path) -> pa.Table:
    return TABLE
