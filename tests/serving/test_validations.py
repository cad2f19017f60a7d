import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from nmt.serving.app import Api, build_app
from nmt.serving.served_run import ServedRun, validations


def record(step: int, sample: int, **more: Any) -> str:
    return json.dumps({"step": step, "sample": sample, "source": f"s{sample}", **more})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    (run / "checkpoints" / "best").mkdir(parents=True)
    lines = [record(10, 1), record(10, 0), record(1, 0), record(1, 1), "[]", "{}", '{"step": 1, "samp']
    (run / "alignments.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return run


def test_they_are_in_order_of_update_and_sentence(folder: Path) -> None:
    for path in (folder, folder / "checkpoints" / "best"):
        found = validations(str(path))
        assert [(each["step"], [sample["sample"] for sample in each["samples"]]) for each in found] == [
            (1, [0, 1]),
            (10, [0, 1]),
        ]


def test_a_run_without_any_has_none(tmp_path: Path) -> None:
    assert validations(str(tmp_path)) == []


def test_they_are_served(run: ServedRun, folder: Path, client: TestClient) -> None:
    moved = ServedRun(str(folder), run.translator, run.languages, 10)
    app = build_app(Api({"checkpoint": moved}, max_waiting=1, requests_per_second=100), ["*"])
    with TestClient(app) as other:
        assert [each["step"] for each in other.get("/validations").json()["validations"]] == [1, 10]
        assert other.get("/validations?run=x").json()["error"] == "run must be one of checkpoint"
