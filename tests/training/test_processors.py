"""Threads that wait for processors."""

import subprocess
import sys
from pathlib import Path

import pytest

from nmt.training import processors
from nmt.training.processors import MOST_WAITING, WINDOW, Processors, waited
from tests.training.toy import Make

BUSY = """
import hashlib, os, threading, time
from nmt.training.processors import waited
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
end = time.monotonic() + 1.0
def work():
    while time.monotonic() < end:
        hashlib.sha256(bytes(2**22)).digest()  # without Python's lock
threads = [threading.Thread(target=work) for _ in range(2)]
before = waited()
for each in threads:
    each.start()
time.sleep(0.9)
print(waited() - before)
"""
needs_schedstat = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not tell")


@needs_schedstat
def test_two_threads_on_one_processor_wait() -> None:
    """Half of the time each, whatever else the machine does."""
    done = subprocess.run([sys.executable, "-c", BUSY], capture_output=True, text=True, check=True, timeout=60)
    assert float(done.stdout) > 0.3


def test_where_the_system_does_not_tell_nobody_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(processors, "THREADS", tmp_path / "none")
    assert waited() == 0.0
    monkeypatch.setattr(processors, "THREADS", tmp_path)
    for name, text in (("1", "5 2000000000 3"), ("2", "5 500000000 3")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "schedstat").write_text(text)
    (tmp_path / "3").mkdir()  # it has just ended
    assert waited() == 2.5


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock, and for how long threads have waited."""
    now = [0.0, 0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(processors, "waited", lambda: now[1])
    return now


def test_waiting_is_told_once(now: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "nmt")
    watched = Processors(2)
    moments = [
        (0.9 * WINDOW, 0.5 * WINDOW),  # too short to judge
        (WINDOW, 0.2 * WINDOW),
        (2 * WINDOW, (0.19 + MOST_WAITING) * WINDOW),
    ]
    for now[0], now[1] in moments:
        watched.look()
        assert caplog.messages == []
    for _ in range(2):
        now[0], now[1] = now[0] + WINDOW, now[1] + 0.3 * WINDOW
        watched.look()
        assert len(caplog.messages) == 1
    assert "the 2 threads of this training wait for each other: threads=1" in caplog.messages[0]


def test_one_thread_waits_for_no_other(now: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "nmt")
    watched = Processors(1)
    now[0], now[1] = 9 * WINDOW, 9 * WINDOW
    watched.look()
    assert caplog.messages == []


def test_the_trainer_looks(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looked = []
    monkeypatch.setattr(Processors, "look", lambda self: looked.append(self.threads))
    trainer, _ = make([1.0], max_steps=4, log_every=2)
    trainer.fit()
    assert (len(looked) > 1, set(looked)) == (True, {1})
