"""Threads that wait for processors."""

import subprocess
import sys
from pathlib import Path

import pytest

from nmt.training import contention
from nmt.training.contention import MAX_WAITING_THREADS, MIN_SECONDS_BETWEEN_CHECKS, ContentionMonitor, seconds_waited
from tests.training.toy import Make

BUSY = """
import hashlib, os, threading, time
from nmt.training.contention import seconds_waited
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
end = time.monotonic() + 1.0
def work():
    while time.monotonic() < end:
        hashlib.sha256(bytes(2**22)).digest()  # without Python's lock
threads = [threading.Thread(target=work) for _ in range(2)]
before = seconds_waited()
for each in threads:
    each.start()
time.sleep(0.9)
print(seconds_waited() - before)
"""
needs_schedstat = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not tell")


@needs_schedstat
def test_two_threads_on_one_processor_wait() -> None:
    """Half of the time each, whatever else the machine does."""
    done = subprocess.run([sys.executable, "-c", BUSY], capture_output=True, text=True, check=True, timeout=60)
    assert float(done.stdout) > 0.3


def test_where_the_system_does_not_tell_nobody_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(contention, "THREAD_FOLDERS", tmp_path / "none")
    assert seconds_waited() == 0.0
    monkeypatch.setattr(contention, "THREAD_FOLDERS", tmp_path)
    for name, text in (("1", "5 2000000000 3"), ("2", "5 500000000 3")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "schedstat").write_text(text)
    (tmp_path / "3").mkdir()  # it has just ended
    assert seconds_waited() == 2.5


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock, and for how long threads have waited."""
    now = [0.0, 0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(contention, "seconds_waited", lambda: now[1])
    return now


def test_waiting_is_reported_once(now: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "nmt")
    monitor = ContentionMonitor(2)
    moments = [
        (0.9 * MIN_SECONDS_BETWEEN_CHECKS, 0.5 * MIN_SECONDS_BETWEEN_CHECKS),  # too short to judge
        (MIN_SECONDS_BETWEEN_CHECKS, 0.2 * MIN_SECONDS_BETWEEN_CHECKS),
        (2 * MIN_SECONDS_BETWEEN_CHECKS, (0.19 + MAX_WAITING_THREADS) * MIN_SECONDS_BETWEEN_CHECKS),
    ]
    for now[0], now[1] in moments:
        monitor.check()
        assert caplog.messages == []
    for _ in range(2):
        now[0], now[1] = now[0] + MIN_SECONDS_BETWEEN_CHECKS, now[1] + 0.3 * MIN_SECONDS_BETWEEN_CHECKS
        monitor.check()
        assert len(caplog.messages) == 1
    assert "the 2 threads of this training wait for each other: threads=1" in caplog.messages[0]


def test_one_thread_waits_for_no_other(now: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "nmt")
    monitor = ContentionMonitor(1)
    now[0], now[1] = 9 * MIN_SECONDS_BETWEEN_CHECKS, 9 * MIN_SECONDS_BETWEEN_CHECKS
    monitor.check()
    assert caplog.messages == []


def test_the_trainer_checks(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    checked = []
    monkeypatch.setattr(ContentionMonitor, "check", lambda self: checked.append(self.threads))
    trainer, _ = make([1.0], max_steps=4, log_every=2)
    trainer.fit()
    assert (len(checked) > 1, set(checked)) == (True, {1})
