"""Two trainings that begin in one folder at the same moment."""

import json
import shutil
from pathlib import Path

import pytest

from tests.chaos.whole import Whole, weights
from tests.processes import Zygote


@pytest.mark.chaos
def test_twenty_double_starts(zygote: Zygote, whole: Whole, tmp_path: Path) -> None:
    """About a minute: `python -m pytest -m chaos tests/chaos/test_starts.py`."""
    for _ in range(20):
        started = [zygote.start("train", "run_dir=run", *whole.options, cwd=tmp_path) for _ in range(2)]
        ended = sorted((zygote.wait(each) for each in started), key=lambda each: each.status)
        assert ended[0].status == 0, ended
        assert ended[1].is_refusal, ended
        assert "process" in ended[1].errors
        assert weights(tmp_path / "run") == whole.weights
        records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
        assert [each["step"] for each in records if each["event"] == "validation"] == [2, 4, 6, 8, 10, 12]
        shutil.rmtree(tmp_path / "run")
