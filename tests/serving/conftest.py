import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from starlette.testclient import TestClient

from nmt.serving.app import Api, build_app
from nmt.serving.served_run import ServedRun
from nmt.serving.server import listen
from tests.browser import Browser
from tests.serving.pages import Serving


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


@pytest.fixture(scope="module")
def serving() -> Serving:
    """Serve an application as long as a context lasts, which gives its address."""

    @contextlib.contextmanager
    def serve(api: Api, port: int = 0) -> Iterator[str]:
        server = uvicorn.Server(uvicorn.Config(build_app(api, ["*"]), log_level="warning"))
        with listen("127.0.0.1", port) as listener:
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
            thread.start()
            while not server.started:
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
            server.should_exit = True
            thread.join(20)

    return serve


@pytest.fixture(scope="module")
def address(run: ServedRun, serving: Serving) -> Iterator[str]:
    """The address of the same run twice."""
    with serving(Api({"checkpoint": run, "compare": run}, max_waiting=64, requests_per_second=1000)) as address:
        yield address


@pytest.fixture
def page(browser: Browser, address: str) -> Browser:
    browser.show()
    browser.open("about:blank")
    browser.open(address)
    browser.wait("document.querySelectorAll('.pane').length == 2")
    browser.errors.clear()
    return browser
