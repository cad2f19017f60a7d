"""The cost model of docs/scaling.md: the time of an update of several processes, and its inputs for a link."""

import statistics
from typing import NamedTuple

import torch

from benchmarking.machine import seconds_of_repeats
from nmt.training.distributed import ProcessGroup

BYTES = 4  # of a number of a gradient
REPEATS = 20  # of the measurement of a link


class Link(NamedTuple):
    """The connection between neighboring processes."""

    bandwidth: float  # bytes a second
    delay: float  # seconds for a message without content

    def all_reduce_seconds(self, numbers: int, processes: int) -> float:
        """Return 2 (n - 1) / n x 4 P / b + 2 (n - 1) l: the time of a sum over a ring  (Patarasuk & Yuan, 2009)."""
        messages = 2 * (processes - 1)
        return messages / processes * BYTES * numbers / self.bandwidth + messages * self.delay

    @classmethod
    def of(cls, seconds_of_one: float, seconds: float, numbers: int, processes: int) -> "Link":
        """Return the link on which the sum of one number and that of many take these times.

        The many must be enough that their time is well above that of one.
        """
        messages = 2 * (processes - 1)
        sent = messages / processes * BYTES * numbers
        return cls(sent / max(seconds - seconds_of_one, 1e-9), seconds_of_one / messages)


class Update(NamedTuple):
    """An update of a process by itself."""

    seconds: float
    target_tokens: float
    parameters: int

    def seconds_of(self, processes: int, link: Link) -> float:
        """Return the time of an update of n processes, each on as many tokens: its own part and the gradient's sum."""
        return self.seconds + link.all_reduce_seconds(self.parameters, processes)

    def rows(self, link: Link, counts: list[int], corpus_tokens: float) -> list[dict[str, float]]:
        """Return rows: processes, an update's time, target tokens/s, efficiency, hours for a corpus."""
        rows = []
        for processes in counts:
            seconds = self.seconds_of(processes, link)
            rate = processes * self.target_tokens / seconds
            rows.append(
                {
                    "processes": processes,
                    "update_ms": 1e3 * seconds,
                    "target_tokens_per_second": rate,
                    "efficiency": self.seconds / seconds,
                    "hours": corpus_tokens / rate / 3600,
                }
            )
        return rows


def measure_link(processes: ProcessGroup, device: torch.device, numbers: int) -> Link:
    """Measure the link between processes by sums of one number and of many; on all ranks."""

    def seconds_of(size: int) -> float:
        tensor = torch.zeros(size, device=device)
        return statistics.median(seconds_of_repeats(lambda: float(processes.all_reduce_(tensor)[0]), REPEATS))

    return Link.of(seconds_of(1), seconds_of(numbers), numbers, processes.world_size)
