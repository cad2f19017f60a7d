"""Products by either library against those in double precision."""

from pathlib import Path

import pytest
import torch

from nmt.fast import kernels
from nmt.fast.kernels import (
    add_grad_weight,
    affine,
    grad_weight,
    is_transposed,
    padded_size,
    prepare_product,
)

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")


@pytest.fixture(params=[False, pytest.param(True, marks=needs_onednn)], ids=["mkl", "onednn"])
def quicker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Let either library multiply, whatever the processor."""
    monkeypatch.setattr(kernels, "onednn_is_faster", lambda x: request.param and x.dtype == torch.float32)
    monkeypatch.setattr(kernels, "IS_ZEN_4", False)
    monkeypatch.setattr(kernels, "AMX", False)
    return bool(request.param)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("layout", ["rows", "columns", "slice"])
def test_affine(quicker: bool, dtype: torch.dtype, has_bias: bool, layout: str) -> None:
    for rows, size, outputs in ((1, 1, 1), (3, 7, 5), (64, 48, 33), (17, 64, 130)):
        whole = torch.randn(outputs, 2 * size, dtype=dtype)
        weight = {"rows": whole[:, :size].contiguous(), "columns": whole[:, :size].t().contiguous().t()}.get(layout)
        weight = whole[:, :size] if weight is None else weight
        bias = torch.randn(outputs, dtype=dtype) if has_bias else None
        x = torch.randn(rows, 2 * size, dtype=dtype)[:, size:]  # not by itself in memory
        expected = x.double() @ weight.double().t() + (0.0 if bias is None else bias.double())
        memory = torch.full((rows, outputs), torch.nan, dtype=dtype)
        for found in (affine(x, weight, bias), affine(x, weight, bias, out=memory)):
            assert found.dtype == dtype
            torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("directions", [(), (2,)], ids=["one", "two"])
@pytest.mark.parametrize("layout", ["rows", "columns", "slice"])
def test_multiplier(quicker: bool, layout: str, directions: tuple[int, ...]) -> None:
    """Chosen once, it multiplies any number of vectors."""
    for rows, size, outputs in ((1, 1, 1), (3, 7, 5), (64, 48, 33)):
        whole = torch.randn(*directions, outputs, 2 * size)
        part = whole[..., :size]
        weight = {"rows": part.contiguous(), "columns": part.mT.contiguous().mT, "slice": part}[layout]
        multiply = prepare_product(weight)
        for _ in range(2):
            x = torch.randn(*directions, rows, 2 * size)[..., size:]
            found = multiply(x)
            torch.testing.assert_close(found.double(), x.double() @ weight.double().mT, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("directions", [(), (2,)], ids=["one", "two"])
def test_grad_weight_is_what_autograd_finds(quicker: bool, directions: tuple[int, ...]) -> None:
    """In either order of the factors: with more outputs than inputs, and with fewer."""
    for rows, size, outputs in ((1, 1, 1), (9, 7, 5), (9, 5, 7), (64, 48, 33)):
        x, grad = torch.randn(*directions, rows, size), torch.randn(*directions, rows, outputs)
        weight = torch.randn(*directions, outputs, size, dtype=torch.float64, requires_grad=True)
        (x.double() @ weight.mT).backward(grad.double())
        torch.testing.assert_close(grad_weight(grad, x).double(), weight.grad, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_added_to_a_total_in_either_layout(quicker: bool, dtype: torch.dtype) -> None:
    for rows, size, outputs in ((1, 1, 1), (9, 7, 5), (9, 5, 7), (64, 33, 48)):
        x, grad = torch.randn(rows, size, dtype=dtype), torch.randn(rows, outputs, dtype=dtype)
        before = torch.randn(outputs, size, dtype=torch.promote_types(dtype, torch.float32))
        expected = before.double() + grad.double().t() @ x.double()
        for total in (before.clone(), before.t().clone(memory_format=torch.contiguous_format).t()):
            assert add_grad_weight(total, grad, x) is total
            relative, absolute = (1e-2, 0.2) if dtype == torch.bfloat16 else (1e-5, 1e-4)
            torch.testing.assert_close(total.double(), expected, rtol=relative, atol=absolute)
        first = add_grad_weight(None, grad, x)
        assert first.dtype == before.dtype
        assert first.stride() == grad_weight(grad, x).stride()
        torch.testing.assert_close(first.double(), expected - before.double(), rtol=relative, atol=absolute)


def test_the_wider_factor_of_onednn_is_not_transposed(quicker: bool) -> None:
    wide, narrow = torch.randn(9, 7), torch.randn(9, 5)
    assert is_transposed(7, narrow) == quicker
    assert is_transposed(7, narrow.bfloat16())
    assert not is_transposed(7, narrow.double())
    assert not is_transposed(5, wide)
    assert grad_weight(wide, narrow).t().is_contiguous() == quicker


@needs_onednn
def test_onednn_copies_no_factors_on_zen_4(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of weights are torch's products there, but for 16-bit numbers; forward products stay oneDNN's."""
    monkeypatch.setattr(kernels, "onednn_is_faster", lambda x: x.dtype == torch.float32)
    monkeypatch.setattr(kernels, "IS_ZEN_4", True)
    monkeypatch.setattr(kernels, "AMX", False)
    by_onednn = []
    monkeypatch.setattr(
        kernels, "onednn_linear", lambda x, w, b, f=kernels.onednn_linear: (by_onednn.append(x.shape), f(x, w, b))[1]
    )
    x, grad, weight = torch.randn(9, 5), torch.randn(9, 7), torch.randn(7, 5)
    torch.testing.assert_close(grad_weight(grad, x), grad.t() @ x)
    torch.testing.assert_close(prepare_product(torch.stack((weight, weight)))(torch.stack((x, x)))[1], x @ weight.t())
    assert not is_transposed(7, x)
    assert is_transposed(7, x.bfloat16())
    assert not by_onednn
    affine(x, weight)
    prepare_product(weight)(x)
    assert by_onednn == [x.shape] * 2


@pytest.mark.parametrize("is_bf16", [True, False])
def test_numbers_of_rows_repeat_with_amx(monkeypatch: pytest.MonkeyPatch, is_bf16: bool) -> None:
    """Few in each octave, none less than asked for, and at most an eighth more than that where there are many."""
    x = torch.zeros(1, dtype=torch.bfloat16 if is_bf16 else torch.float32)
    monkeypatch.setattr(kernels, "AMX", is_bf16)
    found = [padded_size(rows, x) for rows in range(4_097)]
    if not is_bf16:
        assert found == list(range(4_097))
        return
    assert all(rows <= more < rows + max(8, rows / 8) for rows, more in enumerate(found) if rows)
    assert (found[0], found[1], found[700]) == (0, 8, 704)
    assert len(set(found[513:1_025])) == 16
    monkeypatch.setattr(kernels, "AMX", False)
    assert padded_size(700, x) == 700


@pytest.mark.parametrize("rows", [1, 8, 37])
def test_rows_of_padding_change_nothing(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Products in bf16 have the rows that were asked for, whatever oneDNN multiplies."""
    monkeypatch.setattr(kernels, "AMX", True)
    shapes = []
    monkeypatch.setattr(
        kernels, "product", lambda x, *rest, product=kernels.product: (shapes.append(x.shape), product(x, *rest))[1]
    )
    x, weight, bias = (torch.randn(size).bfloat16() for size in ((rows, 24), (40, 24), (40,)))
    grad = torch.randn(rows, 40).bfloat16()
    expected = x.float() @ weight.float().t()
    memory = torch.full((rows, 40), torch.nan, dtype=torch.bfloat16)
    for found in (
        affine(x, weight),
        affine(x, weight, out=memory),
        prepare_product(weight)(x),
        prepare_product(torch.stack((weight, 2 * weight)))(torch.stack((x, x)))[1] / 2,
        affine(x, weight, bias) - bias,
    ):
        torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.1)
    torch.testing.assert_close(grad_weight(grad, x).float(), grad.float().t() @ x.float(), rtol=0.05, atol=0.1)
    assert {shape[0] for shape in shapes} <= {8, 40, 24}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n", ("GenuineIntel", 6)),
        ("vendor_id\t: AuthenticAMD\ncpu family\t: 25\n", ("AuthenticAMD", 25)),
        ("CPU implementer\t: 0x41\nCPU architecture: 8\n", ("", 0)),
        (None, ("", 0)),
    ],
)
def test_maker_and_family_of_the_processor(
    text: str | None, expected: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "cpuinfo"
    if text is not None:
        place.write_text(text, encoding="ascii")
    monkeypatch.setattr(kernels, "Path", lambda path: place)
    assert kernels.processor() == expected
