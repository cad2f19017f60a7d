"""Commands in processes of their own that can be killed, limited, and started together (`tests/zygote.py`)."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(os.environ.get("NMT_TESTED_CHECKOUT", Path(__file__).parents[1]))


class Ended(NamedTuple):
    """How a process ended: its exit status (negative: the signal that killed it), and what it printed."""

    status: int
    output: str
    errors: str

    @property
    def is_refusal(self) -> bool:
        """It has told one error, and left with status 2."""
        lines = self.errors.rstrip().splitlines()
        return self.status == 2 and lines[-1].startswith("error: ") and not self.has_traceback

    @property
    def has_traceback(self) -> bool:
        return "Traceback (most recent call last)" in self.errors


class Started(NamedTuple):
    """A process that runs."""

    child: int
    places: list[Path]


class Zygote:
    """Starts commands; use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = 0

    def __enter__(self) -> "Zygote":
        line = [sys.executable, str(Path(__file__).with_name("zygote.py"))]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        environment["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # torch reads it when imported; `nmt.cli` sets it before
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(line, env=environment, text=True, **pipes)  # type: ignore[call-overload]
        return self

    def __exit__(self, *error: object) -> None:
        self.process.stdin.close()
        self.process.wait()

    def ask(self, **request: object) -> int:
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def start(
        self,
        module: str,
        *arguments: str,
        cwd: Path,
        stdin: bytes = b"",
        part: str = "",
        kill_at: int = 0,
        kill_after: float = 0.0,
        largest_file: int = -1,
        memory: int = -1,
        environment: dict[str, str] | None = None,
    ) -> Started:
        """Start `main` of a module; for the others see `zygote.in_child`. Of `nmt`, unless its name has a package."""
        self.number += 1
        places = [self.folder / f"{self.number}.{name}" for name in ("in", "out", "err")]
        places[0].write_bytes(stdin)
        child = self.ask(
            module=module if "." in module else f"nmt.{module}",
            arguments=arguments,
            cwd=str(cwd),
            places=[str(place) for place in places],
            part=part,
            kill_at=kill_at,
            kill_after=kill_after,
            largest_file=largest_file,
            memory=memory,
            environment=environment or {},
        )
        return Started(child, places)

    def wait(self, started: Started, seconds: float = 120) -> Ended:
        """Wait for its end; kill it after so many seconds, and fail."""
        status = self.ask(wait=started.child, seconds=seconds)
        output, errors = (place.read_text(encoding="utf-8", errors="replace") for place in started.places[1:])
        for place in started.places:
            place.unlink()
        assert status != 1000, f"not done in {seconds} s: {errors[-1000:]}"
        return Ended(status, output, errors)

    def wait_for_all(self, started: Sequence[Started], seconds: float = 120) -> list[Ended]:
        """Wait for the end of processes that need each other: if one takes too long, kill the others, too."""
        waiting = list(started)
        try:
            return [self.wait(waiting.pop(0), seconds) for _ in started]
        except AssertionError:
            for each in waiting:
                self.ask(wait=each.child, seconds=0)
            raise

    def run(self, module: str, *arguments: str, seconds: float = 120, **limits: Any) -> Ended:
        """Start it, and wait for its end."""
        return self.wait(self.start(module, *arguments, **limits), seconds)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
