from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from nmt.serving.app import Api, build_app
from nmt.serving.served_run import ServedRun


@pytest.fixture(scope="module")
def run(tiny_run: Path) -> ServedRun:
    return ServedRun.load(str(tiny_run), max_subwords=40, device="cpu", beam_size=3)


@pytest.fixture
def api(run: ServedRun) -> Api:
    return Api({"checkpoint": run}, max_waiting=8, requests_per_second=1000)


@pytest.fixture
def client(api: Api) -> Iterator[TestClient]:
    with TestClient(build_app(api, ["testserver"]), raise_server_exceptions=False) as client:
        yield client
