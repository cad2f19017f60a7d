"""A headless Chromium, driven by its DevTools protocol: what a test of a page needs, and no more."""

import base64
import contextlib
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
EXECUTABLE = next(filter(None, map(shutil.which, NAMES)), None)
SKIP = "no browser: install Chromium (Debian: apt install chromium) to run the tests of pages"
KEYS = {"Enter": "\r", " ": " "}


class Browser:
    """One tab of a browser."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.number = 0
        self.errors: list[str] = []  # exceptions that scripts did not catch, and what the console has as an error
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv(timeout=30))
            self.note(message)
            if message.get("id") == self.number:
                assert "error" not in message, message["error"]
                return dict(message["result"])

    def note(self, message: dict[str, Any]) -> None:
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(message["params"]["exceptionDetails"]))
        elif message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.errors.append(str(message["params"]["entry"]["text"]))

    def show(self, width: int = 1200, height: int = 900, *, dark: bool = False) -> None:
        """Set the size of the window, and the color scheme that the user prefers."""
        is_phone = width < 600
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        self.send("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def open_html(self, page: str, folder: Path) -> None:
        (folder / "page.html").write_text(page, encoding="utf-8")
        self.open((folder / "page.html").as_uri())

    def run(self, script: str) -> Any:
        """Return the value of an expression."""
        done = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait(self, condition: str, seconds: float = 20) -> None:
        limit = time.monotonic() + seconds
        while not self.run(f"!!({condition})"):
            assert time.monotonic() < limit, f"not within {seconds} s: {condition}; errors: {self.errors}"
            time.sleep(0.03)

    def place(self, selector: str) -> tuple[float, float]:
        """Return the center of the first element that matches, scrolled into view."""
        name = json.dumps(selector)
        self.run(f"document.querySelector({name}).scrollIntoView({{block: 'center', inline: 'center'}})")
        box = self.run(
            f"(b => [b.x + b.width / 2, b.y + b.height / 2])(document.querySelector({name}).getBoundingClientRect())"
        )
        return float(box[0]), float(box[1])

    def hover(self, selector: str) -> None:
        x, y = self.place(selector)
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        x, y = self.place(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            pressed = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **pressed)

    def key(self, name: str, modifiers: int = 0) -> None:
        text = {"text": KEYS[name]} if name in KEYS else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=name, modifiers=modifiers, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=name, modifiers=modifiers)

    def type(self, text: str) -> None:
        """Type text, character by character, where the focus is."""
        for character in text:
            self.send("Input.insertText", text=character)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextlib.contextmanager
def started() -> Iterator[Browser]:
    """Start a browser with one tab; skip the test, and say so, where none is installed."""
    if EXECUTABLE is None:
        pytest.skip(SKIP)
    client = pytest.importorskip("websockets.sync.client", reason="websockets is not installed: pip install '.[test]'")
    with tempfile.TemporaryDirectory(prefix="nmt-browser-", ignore_cleanup_errors=True) as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options += ["--disable-background-networking", "--remote-debugging-port=0", f"--user-data-dir={profile}"]
        process = subprocess.Popen([EXECUTABLE, *options, "about:blank"], stderr=subprocess.PIPE, text=True)
        try:
            with client.connect(tab_of(process), max_size=None, compression=None, proxy=None) as socket:
                yield Browser(socket)
        finally:
            process.terminate()
            process.wait(10)


def tab_of(process: subprocess.Popen[str]) -> str:
    """Return the address of the tab's socket, which the browser tells on standard error."""
    import urllib.request

    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("DevTools listening on ws://"):
            address = line.split("ws://")[1].split("/")[0]
            break
    else:
        pytest.fail("the browser did not start")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        with opener.open(f"http://{address}/json/list") as answer:
            tabs = [tab for tab in json.load(answer) if tab["type"] == "page"]
        if tabs:
            return str(tabs[0]["webSocketDebuggerUrl"])
        time.sleep(0.05)
    pytest.fail("the browser has no tab")
