"""`python -m nmt.serve` as a user starts it."""

import functools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from nmt.config.schema import ServeConfig
from nmt.errors import UserError
from nmt.serving.server import hosts_of, is_loopback, listen, load
from tests.runs import ROOT, wait_for


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN], ids=["foreground", "background"])
def test_it_serves_until_interrupted(tiny_run: Path, tmp_path: Path, handler: signal.Handlers) -> None:
    """Background jobs of a shell begin with SIGINT ignored."""
    line = [sys.executable, "-m", "nmt.serve", f"checkpoint={tiny_run}", f"compare={tiny_run}", "port=0", "threads=1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    pipes["preexec_fn"] = functools.partial(signal.signal, signal.SIGINT, handler)
    with subprocess.Popen([*line, "device=cpu"], cwd=tmp_path, env=environment, **pipes) as process:
        assert process.stdout is not None
        started = re.fullmatch(
            r"serving .* at (http://127\.0\.0\.1:\d+) \(Ctrl-C ends it\)\n", process.stdout.readline()
        )
        assert started, process.stderr.read() if process.stderr else ""
        asked = json.dumps({"text": "He sleeps.", "run": "compare"}).encode()
        request = urllib.request.Request(f"{started[1]}/translate", asked, {"content-type": "application/json"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as answer:
            assert json.load(answer)["run"] == "compare"
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=30)
    assert (process.returncode, rest, errors) == (130, "", "interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_who_waits_when_it_ends_is_told(tiny_run: Path, tmp_path: Path) -> None:
    """One of them is being translated; all get an answer in JSON, and the log has no traceback."""
    line = [sys.executable, "-m", "nmt.serve", f"checkpoint={tiny_run}", "port=0", "threads=1", "device=cpu"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    asked = {"text": "He sleeps. " * 60, "n_best": 20}
    with subprocess.Popen(line, cwd=tmp_path, env=environment, **pipes) as process:
        address = re.findall(r"http://[\d.:]+", process.stdout.readline())[0]
        with httpx2.Client(base_url=address, trust_env=False, timeout=60) as client, ThreadPoolExecutor(16) as pool:
            coming = [pool.submit(client.post, "/translate", json=asked) for _ in range(16)]
            try:
                wait_for(lambda: client.get("/health").json()["waiting"] > 8, seconds=60)
            finally:
                process.send_signal(signal.SIGINT)
            answers = [each.result() for each in coming]
        _, errors = process.communicate(timeout=60)
    refused = [answer for answer in answers if answer.status_code == 503]
    assert {answer.status_code for answer in answers} == {200, 503}
    assert {answer.json()["error"] for answer in refused} == {"the server is ending"}
    assert (process.returncode, errors) == (130, "interrupted\n")


def test_a_missing_extra_is_named(call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.serve.find_spec", lambda name: None)
    done = call("serve")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: nmt.serve needs starlette and uvicorn: pip install -e '.[serve]'\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["checkpoint=nothing"], "nothing"),
        (["port=70000"], "port=70000 is out of range: it must be at most 65535"),
        (["chekpoint=x"], "unknown key 'chekpoint'; did you mean 'checkpoint'?"),
    ],
)
def test_wrong_options_are_told(call: Callable[..., Any], options: list[str], message: str) -> None:
    done = call("serve", "port=0", *options)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr


def test_a_port_in_use_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UserError, match=rf"cannot listen on host=127\.0\.0\.1 port={port}: .*choose another port="):
            listen("127.0.0.1", port)
    with pytest.raises(UserError, match="cannot listen on host=no such host"):
        listen("no such host", 0)


def test_addresses_of_this_machine() -> None:
    assert "127.0.0.2" in hosts_of("127.0.0.2")
    assert "localhost" in hosts_of("127.0.0.1")
    assert "example.org" not in hosts_of("127.0.0.1")
    assert hosts_of("0.0.0.0") == ["*"]
    assert [host for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org") if is_loopback(host)] == [
        "127.0.0.1",
        "::1",
        "localhost",
    ]


def test_the_default_is_this_machine_only() -> None:
    assert is_loopback(ServeConfig().host)


def test_runs_of_other_languages_are_not_compared(tiny_run: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_run / "checkpoints" / "best", tmp_path / "other")
    (tmp_path / "other" / "manifest.json").unlink()  # the folder is edited
    config = tmp_path / "other" / "config.yaml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("source_language: en", "source_language: de"), encoding="utf-8")
    with pytest.raises(UserError, match=r"compare: .* translates from de, and .* from en"):
        load(ServeConfig(checkpoint=str(tiny_run), compare=str(tmp_path / "other"), device="cpu"))
