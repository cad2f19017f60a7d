"""Mixed precision: whether autocast computes in bf16 on a device."""

import logging

import torch

logger = logging.getLogger(__name__)


def autocast_dtype(precision: str, device: torch.device) -> torch.dtype | None:
    """Return the dtype of autocast for `trainer.precision` (auto, fp32 or bf16), or None for no autocast.

    `auto` is bf16 where the device has instructions for it. Elsewhere bf16 is emulated, on a CPU many times slower
    than fp32: asking for `bf16` then logs a warning.
    """
    supported = supports_bf16(device)
    if precision == "bf16" and not supported:
        logger.warning("this %s has no bf16 instructions: trainer.precision=auto or fp32 is much faster", device.type)
    return torch.bfloat16 if precision == "bf16" or (precision == "auto" and supported) else None


def supports_bf16(device: torch.device) -> bool:
    """Return whether a device has instructions for bf16 products."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # torch has no public function for this.
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in names)
