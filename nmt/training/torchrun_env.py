"""Which process this is, of those that a launcher has started to train together."""

from collections.abc import Mapping
from dataclasses import dataclass

from nmt.errors import UserError

NUMBERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
PLACE = ("MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Launch:
    """The number of this process among all of a training, and among those of its machine; how many there are."""

    rank: int = 0
    local_rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that reports and writes."""
        return self.rank == 0

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Launch":
        """Read the variables that `torchrun` sets; without them, or with WORLD_SIZE=1, a process is alone.

        Raises:
            UserError: WORLD_SIZE announces several processes, and the other variables do not say which this is.
        """
        if environment.get("WORLD_SIZE", "1") == "1":
            return cls()
        shown = " ".join(f"{name}={environment.get(name, '')}" for name in (*NUMBERS, *PLACE))
        wrong = UserError(
            f"{shown} do not tell this process's place among several: start it with torchrun, or unset them"
        )
        try:
            rank, local_rank, size, _ = (int(environment[name]) for name in (*NUMBERS, "MASTER_PORT"))
        except (KeyError, ValueError):
            raise wrong from None
        if not (0 <= rank < size and 0 <= local_rank < size and environment.get("MASTER_ADDR")):
            raise wrong
        return cls(rank, local_rank, size)
