"""The rank of this process among those that torchrun has started, read from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass

from nmt.errors import UserError

RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
MASTER_VARIABLES = ("MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class RankEnvironment:
    """Rank of this process among the `world_size` of a training, and among those of its machine."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1

    @property
    def is_rank_zero(self) -> bool:
        """Whether this is the process that reports and writes."""
        return self.rank == 0

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "RankEnvironment":
        """Read the variables that `torchrun` sets, or raise UserError if they do not describe a rank below WORLD_SIZE.

        Without them, or with WORLD_SIZE=1, there is a single process.
        """
        if environment.get("WORLD_SIZE", "1") == "1":
            return cls()
        names = (*RANK_VARIABLES, *MASTER_VARIABLES)
        shown = " ".join(f"{name}={environment.get(name, '')}" for name in names)
        wrong = UserError(f"{shown} do not identify this process among several: start it with torchrun, or unset them")
        try:
            rank, local_rank, world_size, _ = (int(environment[name]) for name in (*RANK_VARIABLES, "MASTER_PORT"))
        except (KeyError, ValueError):
            raise wrong from None
        if not (0 <= rank < world_size and 0 <= local_rank < world_size and environment.get("MASTER_ADDR")):
            raise wrong
        return cls(rank, local_rank, world_size)
