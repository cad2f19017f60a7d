"""Fifty clients at once for a minute: no error, and memory stays level."""

import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.runs import ROOT

CLIENTS, SECONDS = 50, float(os.environ.get("LOAD_SECONDS", "60"))
SENTENCES = ["She helps her brother.", "He sleeps.", "The sister of Luc sees me when she meets this aunt.", "<b>"]


def memory(process: int) -> int:
    """Resident memory in MiB."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) // 1024


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_fifty_clients_for_a_minute(tiny_run: Path, tmp_path: Path) -> None:
    line = [sys.executable, "-m", "nmt.serve", f"checkpoint={tiny_run}", "port=0", "threads=1", "device=cpu"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    statuses: list[int] = []
    memories: list[int] = []

    def client(port: int, number: int, until: float) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while time.monotonic() < until:
            asked = {"text": SENTENCES[len(statuses) % 4], "n_best": 1 + number % 3, "saliency": number % 10 == 0}
            path = "/next" if number % 7 == 0 else "/translate"
            asked = {"text": asked["text"]} if path == "/next" else asked
            connection.request("POST", path, json.dumps(asked), {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)

    with subprocess.Popen(line, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(re.findall(r":(\d+) ", process.stdout.readline())[0])
        until = time.monotonic() + SECONDS
        threads = [threading.Thread(target=client, args=(port, number, until)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        while time.monotonic() < until:
            time.sleep(SECONDS / 12)
            memories.append(memory(process.pid))
        for thread in threads:
            thread.join()
        process.terminate()
    print(f"{len(statuses)} requests, {len(statuses) / SECONDS:.0f} a second; memory in MiB {memories}")
    assert set(statuses) == {200}
    assert memories[-1] - memories[len(memories) // 4] < 20
