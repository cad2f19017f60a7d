"""The states of torch's random generators on all ranks, as a checkpoint holds them."""

from typing import Any

import torch

from nmt.training.distributed import ProcessGroup


def random_state(device: torch.device, processes: ProcessGroup) -> dict[str, Any]:
    """Return the states of the CPU's generators, [rank, state], and those of the GPUs', if they train; collective."""
    is_cuda = device.type == "cuda"
    return {
        "random": torch.stack(processes.all_gather(torch.get_rng_state())),
        "cuda_random": processes.all_gather(torch.cuda.get_rng_state(device)) if is_cuda else [],
    }


def restore_random_state(state: dict[str, Any], device: torch.device, processes: ProcessGroup) -> None:
    """Restore this rank's generators from what `random_state` returned."""
    states = state["random"].view(-1, state["random"].shape[-1])
    torch.set_rng_state(states[processes.rank].clone())  # a copy: torch reads from the beginning of its storage
    if device.type == "cuda" and state["cuda_random"]:
        torch.cuda.set_rng_state(state["cuda_random"][processes.rank], device)
