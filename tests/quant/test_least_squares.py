from __future__ import annotations

import pytest
import torch
from torch import Tensor

from qunlearn.quant import functional as F
from qunlearn.quant.kernels import zero_point
from qunlearn.quant.least_squares import least_squares_range, least_squares_scale


def error(x: Tensor, scale: Tensor, zero: Tensor | float, low: int, high: int) -> Tensor:
    """The squared error of rows by scales: (rows, elements), (rows, scales) -> (rows, scales)."""
    grid = x[:, None] / scale[..., None] + zero
    return (x[:, None] - scale[..., None] * (grid.round().clamp(low, high) - zero)).square().sum(-1)


def slack(bits: int) -> float:
    """At 8 bits the error of a few hundred numbers is a comb of chance dips, and worth little."""
    return 1.2 if bits == 8 else 1.02


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("kind", ["normal", "laplace", "outlier", "uniform", "positive"])
def test_least_squares_scale_is_as_good_as_a_dense_search(
    bits: int, signed: bool, kind: str
) -> None:
    torch.manual_seed(bits)
    x = torch.randn(6, 300, dtype=torch.float64)
    if kind == "laplace":
        x = x.sign() * torch.empty_like(x).exponential_()
    elif kind == "outlier":
        x[:, 0] = 30
    elif kind == "uniform":
        x = torch.rand_like(x) - 0.5
    elif kind == "positive":
        x = x.abs()
    low, high = F.code_range(bits, signed)
    found = least_squares_scale(x, 0, low, high)
    assert found.shape == (6, 1)
    dense = x.abs().amax(1, keepdim=True) * torch.logspace(-3.5, 0.5, 3000, dtype=x.dtype)
    best = error(x, dense, 0, low, high).amin(1)
    assert (error(x, found, 0, low, high)[:, 0] <= slack(bits) * best).all()


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("kind", ["relu", "swish", "normal", "negative", "shifted"])
def test_least_squares_range_is_nearly_as_good_as_a_dense_search(bits: int, kind: str) -> None:
    torch.manual_seed(bits)
    x = torch.randn(400, dtype=torch.float64)
    x = {
        "relu": x.relu(),
        "swish": torch.nn.functional.silu(3 * x),
        "normal": x,
        "negative": -x.abs(),
        "shifted": x + 10,
    }[kind]
    low, high = F.code_range(bits, signed=False)
    scale, offset = least_squares_range(x, low, high)
    zero = zero_point(offset, scale, low, high)
    assert (offset / scale + zero).abs() < 1e-9  # it is on its own grid already
    dense = x.abs().max() * torch.logspace(-3.5, 0.5, 1500, dtype=x.dtype)
    best = min(
        error(x[None], dense[None], float(z), low, high).amin().item()
        for z in range(low, high + 1, 1 if bits < 8 else 15)
    )
    # 1.2: on symmetric data the mirrored zero point is a second basin, nearly as deep.
    assert error(x[None], scale.reshape(1, 1), zero, low, high).item() <= 1.2 * best


@pytest.mark.parametrize("bits", [2, 8])
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(
    "row", [[0.0] * 4, [3.0] * 4, [-3.0] * 4, [0.7], [-1e-30, 1e-30], [1e30, -1e30], [0.0, 1e-20]]
)
def test_least_squares_of_degenerate_tensors(bits: int, signed: bool, row: list[float]) -> None:
    low, high = F.code_range(bits, signed)
    x = torch.tensor(row)
    scale = least_squares_scale(x[None], 0, low, high)
    assert torch.isfinite(scale).all()
    assert (scale > 0).all()
    scale, offset = least_squares_range(x, low, high)
    assert torch.isfinite(offset)
    assert scale > 0
    if 1e-6 < x.abs().max() < 1e6:  # a constant is exactly representable
        found = F.offset_quantize(x, scale, offset, low, high)
        torch.testing.assert_close(found, x)


def test_each_row_has_a_scale_of_its_own() -> None:
    x = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    together = least_squares_scale(x, 0, -8, 7)
    alone = torch.cat([least_squares_scale(row[None], 0, -8, 7) for row in x])
    assert torch.equal(together, alone)
    louder = least_squares_scale(x * torch.tensor([[1.0], [4.0], [0.5]]), 0, -8, 7)
    assert torch.equal(louder, together * torch.tensor([[1.0], [4.0], [0.5]]))
