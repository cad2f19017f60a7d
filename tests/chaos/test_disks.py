"""Disks that are full at any moment: files that the system refuses above a size.

The long form: `python -m pytest -m chaos tests/chaos/test_disks.py`. See also `tests/test_full_disk.py`.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.chaos.whole import Whole, weights
from tests.processes import Zygote


@pytest.mark.chaos
def test_fifty_sizes(zygote: Zygote, whole: Whole, tmp_path: Path) -> None:
    """About three minutes. What is printed goes to files, too, of less than the smallest size."""
    largest = max(path.stat().st_size for path in whole.folder.rglob("*") if path.is_file())
    refused = 0
    for size in np.geomspace(5_000, largest - 1, 50).astype(int).tolist():
        done = zygote.run("train", "run_dir=run", *whole.options, cwd=tmp_path, largest_file=size)
        assert done.is_refusal or (done.status == 0 and not done.has_traceback), f"{size}: {done}"
        refused += done.is_refusal
        assert not list(tmp_path.rglob("*.tmp")), size
        again = zygote.run("train", "run_dir=run", *whole.options, cwd=tmp_path)
        assert again.status == 0, again.errors
        assert weights(tmp_path / "run") == whole.weights, size
        shutil.rmtree(tmp_path / "run")
    assert refused > 40


@pytest.mark.chaos
def test_a_tmpfs_that_is_full(zygote: Zygote, whole: Whole, tmp_path: Path) -> None:
    """A small disk instead of a limit, where this user may mount one (root may). Half a minute."""
    import subprocess

    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("this user may not mount a tmpfs")
    try:
        for kilobytes in range(0, 1000, 100):
            (disk / "filler").write_bytes(b"x" * 1000 * kilobytes)
            done = zygote.run("train", f"run_dir={disk / 'run'}", *whole.options, cwd=tmp_path)
            assert done.is_refusal, done
            assert "No space left on device" in done.errors or "could not be written to its end" in done.errors
            shutil.rmtree(disk / "run", ignore_errors=True)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
