"""Updates that do not fit in memory: their batches are halved until they do, and the gradients of the parts added."""

import logging
import math
from dataclasses import dataclass
from typing import final

from nmt.data.batch import Batch
from nmt.errors import UserError, is_out_of_memory

logger = logging.getLogger(__name__)


@final
@dataclass
class BatchHalving:
    """Halves batches that are known to be too large for memory, once one was."""

    world_size: int  # number of processes; with several, an update cannot be begun again
    max_positions: float = math.inf  # of a batch

    def split(self, batch: Batch) -> list[Batch]:
        """Return parts of a batch that are not known to be too large: mostly the batch itself."""
        if count_positions(batch) <= self.max_positions or len(batch) == 1:
            return [batch]
        half = len(batch) // 2
        return [*self.split(batch.part(slice(half))), *self.split(batch.part(slice(half, None)))]

    def record_out_of_memory(self, batch: Batch, error: Exception) -> None:
        """Remember that a batch was too large; raise UserError if it cannot be halved, and an error of another kind."""
        if not is_out_of_memory(error):
            raise error
        if self.world_size > 1:
            raise UserError(
                "memory does not suffice for a batch, and several processes cannot halve it: lower batch.size, and "
                "raise trainer.accumulate as much"
            ) from error
        if len(batch) == 1:
            lengths = f"{batch.num_source_tokens} and {batch.num_target_tokens}"
            reason = str(error).strip() or "no memory"
            raise UserError(
                f"memory does not suffice for a pair of {lengths} subwords ({reason}): lower batch.max_length, or the "
                "sizes of the model"
            ) from error
        if math.isinf(self.max_positions):
            logger.info(
                "memory does not suffice for a batch of %d pairs: from now on such batches are halved, which takes "
                "longer; to avoid it, lower batch.size and raise trainer.accumulate as much",
                len(batch),
            )
        self.max_positions = count_positions(batch) // 2


def count_positions(batch: Batch) -> int:
    """Return the number of subwords of both sides, padding included."""
    return batch.source.numel() + batch.target_in.numel()
