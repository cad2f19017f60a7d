"""A process that has imported nmt, and forks a child for each command: hundreds of them start at once.

It reads requests from standard input, a JSON object a line, and answers each with a number: `{"module": ..., ...}`
starts a child (its process id), `{"wait": pid, "seconds": s}` waits for its end (its exit status, negative: the signal
that killed it; 1000: it was killed because it took too long).
"""

import contextlib
import gc
import importlib
import io
import json
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

MODULES = ("train", "translate", "evaluate", "doctor")
TOO_LONG = 1000

# The calls that change files, as Python's audit events name them.
CHANGES = frozenset({"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.truncate", "shutil.rmtree"})


def serve() -> None:
    """Answer requests until standard input ends."""
    for module in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(f"nmt.{module}")
    # What a training imports when it begins: seconds for each child.
    import torch.utils.tensorboard  # noqa: F401

    import nmt.cli
    import nmt.evaluation.run
    import nmt.training.run
    import nmt.translator

    nmt.cli.EXIT_DELAY = 0  # no torchrun waits for them
    gc.freeze()  # so that no child copies what it shares by looking for garbage in it

    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = wait(request["wait"], request["seconds"])
        elif (answer := os.fork()) == 0:
            status = 70
            try:
                status = in_child(**request)
            finally:
                os._exit(status)
        print(answer, file=answers, flush=True)


def wait(child: int, seconds: float) -> int:
    """Return the exit status of a child."""
    limit = time.monotonic() + seconds
    while (found := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > limit:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return TOO_LONG
        time.sleep(0.005)
    return os.waitstatus_to_exitcode(found[1])


def in_child(
    module: str,
    arguments: list[str],
    cwd: str,
    places: list[str],
    part: str,
    kill_at: int,
    kill_after: float,
    largest_file: int,
    memory: int,
    environment: dict[str, str],
) -> int:
    """Run a command; return its exit status.

    Args:
        module: its module, whose `main` is called.
        arguments: its arguments.
        cwd: the folder in which it runs.
        places: files of standard input, output and error.
        part: of the paths of files whose changes are counted; the number is written to `changes` in `cwd`.
        kill_at: number of the change at which the process is killed; 0: none.
        kill_after: seconds after which it is killed; 0: none.
        largest_file: most bytes of a file; -1: any.
        memory: most bytes of its addresses; -1: any.
        environment: further variables.
    """
    os.environ |= environment
    for number, place in enumerate(places):
        os.dup2(os.open(place, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="ascii")
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.BufferedWriter(io.FileIO(n, "w", closefd=False)), encoding="utf-8", write_through=True)
        for n in (1, 2)
    )
    os.chdir(cwd)
    sys.argv = [module, *arguments]
    if kill_after:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, kill_after)
    if part:
        sys.addaudithook(counter := Counter(part, kill_at))
    for kind, value in ((resource.RLIMIT_FSIZE, largest_file), (resource.RLIMIT_AS, memory)):
        resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))
    try:
        importlib.import_module(module).main()
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        if part:
            Path("changes").write_text(str(counter.count))
    return 0


class Counter:
    """An audit hook that counts the changes of files whose path has a part, and kills the process at one of them."""

    def __init__(self, part: str, kill_at: int) -> None:
        self.part = part
        self.kill_at = kill_at
        self.count = 0

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        is_change = event in CHANGES or (event == "open" and is_writing(arguments))
        if is_change and any(isinstance(each, str | os.PathLike) and self.part in str(each) for each in arguments):
            self.count += 1
            if self.count == self.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)


def is_writing(arguments: tuple[Any, ...]) -> bool:
    """Tell whether arguments of the event `open` (path, mode, flags) open a file for writing."""
    flags = arguments[2]
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


if __name__ == "__main__":
    serve()
