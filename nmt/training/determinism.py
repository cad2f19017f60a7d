"""Make runs bitwise reproducible, on one machine with the same threads, processes and libraries."""

import os

import torch
import torch.utils.deterministic

from nmt.config.schema import TrainConfig
from nmt.errors import UserError

CLOCK_LIMITS = ("max_minutes", "validate_every_minutes")


def use_deterministic_kernels(config: TrainConfig) -> None:
    """Use PyTorch's deterministic kernels only, for the rest of the process; raise UserError if how the run goes
    depends on the clock. On a CPU they are the usual ones, which add in a fixed order for a given number of threads.
    """
    for name in CLOCK_LIMITS:
        value = getattr(config.trainer, name)
        if value is not None:
            raise UserError(
                f"deterministic=true excludes trainer.{name}={value:g}, which depends on the clock: set "
                f"trainer.{name}=null, and trainer.max_steps or trainer.max_epochs"
            )
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is first used
    torch.use_deterministic_algorithms(True)
    # The fast path writes all that it reads.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False
