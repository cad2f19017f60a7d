"""`auto` takes bf16 only where it pays."""

import pytest
import torch

from nmt.training import precision
from nmt.training.precision import autocast_dtype, supports_bf16

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("wanted", "supported", "expected"),
    [
        ("fp32", True, None),
        ("fp32", False, None),
        ("auto", True, torch.bfloat16),
        ("auto", False, None),
        ("bf16", True, torch.bfloat16),
        ("bf16", False, torch.bfloat16),
    ],
)
def test_auto_asks_the_device(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    wanted: str,
    supported: bool,
    expected: torch.dtype | None,
) -> None:
    monkeypatch.setattr(precision, "supports_bf16", lambda device: supported)
    assert autocast_dtype(wanted, CPU) == expected
    warned = "this cpu has no bf16 instructions: trainer.precision=auto or fp32 is much faster" in caplog.text
    assert warned == (wanted == "bf16" and not supported)


@pytest.mark.parametrize("instructions", [(), ("_is_avx512_bf16_supported",), ("_is_amx_tile_supported",)])
def test_a_cpu_supports_bf16_with_either_set_of_instructions(
    monkeypatch: pytest.MonkeyPatch, instructions: tuple[str, ...]
) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda name=name: name in instructions, raising=False)
    assert supports_bf16(CPU) == bool(instructions)
