"""Which arithmetic pays on a device."""

import logging

import torch

logger = logging.getLogger(__name__)


def autocast_dtype(precision: str, device: torch.device) -> torch.dtype | None:
    """Return the type that autocast shall use for products, or None for none.

    `auto` takes bf16 where the device has instructions for it. Elsewhere bf16 products are emulated, on a CPU many
    times slower than fp32; who asks for `bf16` gets them nevertheless, and a warning.
    """
    quick = multiplies_bf16(device)
    if precision == "bf16" and not quick:
        logger.warning("this %s has no bf16 instructions: trainer.precision=auto or fp32 is much faster", device.type)
    return torch.bfloat16 if precision == "bf16" or (precision == "auto" and quick) else None


def multiplies_bf16(device: torch.device) -> bool:
    """Tell whether a device has instructions for bf16 products."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # PyTorch has no public question for it.
    return any(getattr(torch.cpu, name, bool)() for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
