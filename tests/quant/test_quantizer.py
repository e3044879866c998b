"""What every quantizer promises, whatever its kind."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quant.references import BITS, tensors
from quant.started import for_input, for_weight
from torch import Tensor

from qunlearn.quant import Quantizer, families
from qunlearn.quant.pact import DorefaWeight
from qunlearn.quant.quantizer import sampled

KINDS = st.sampled_from(["lsq", "lsq+", "pact", "dsq"])
each_kind = pytest.mark.parametrize("kind", ["lsq", "lsq+", "pact", "dsq"])
each_init = pytest.mark.parametrize("init", ["published", "mse"])


def move(quantizer: Quantizer, seed: int, size: float) -> None:
    """Move the parameters as training might, also to where they make no sense."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in quantizer.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))


def on_grid(quantizer: Quantizer, x: Tensor) -> None:
    output, grid = quantizer(x).detach(), quantizer.grid(x)
    codes = grid.codes(output)
    assert codes.dtype == torch.int32
    assert codes.min() >= grid.low
    assert codes.max() <= grid.high
    assert grid.high - grid.low < 2**quantizer.bits
    if isinstance(quantizer, DorefaWeight):  # computed in another order, so all but the last bits
        assert ((grid.values(codes) - output).abs() <= 1e-4 * grid.scale).all()
    else:
        assert torch.equal(grid.values(codes), output)


MOVES = st.sampled_from([0.0, 0.01, 1.0, 10.0])


@given(kind=KINDS, x=tensors(), bits=BITS, channels=st.booleans(), seed=BITS, size=MOVES)
def test_weights_lie_on_the_grid_and_zero_is_on_it(
    kind: str, x: Tensor, bits: int, channels: bool, seed: int, size: float
) -> None:
    x = x.float()
    quantizer = for_weight(kind, x, bits, channels)
    move(quantizer, seed, size)
    on_grid(quantizer, x)
    if kind != "pact":  # DoReFa's grid has none, as published
        assert (quantizer(torch.zeros_like(x)) == 0).all()


@given(kind=KINDS, x=tensors(), bits=BITS, seed=BITS, size=MOVES)
def test_inputs_lie_on_the_grid_and_zero_is_on_it(
    kind: str, x: Tensor, bits: int, seed: int, size: float
) -> None:
    x = x.float()
    quantizer = for_input(kind, x, bits)
    move(quantizer, seed, size)
    on_grid(quantizer, x)
    assert (quantizer(torch.zeros_like(x)) == 0).all()
    grid = quantizer.grid()
    assert grid.values(grid.zero_point.to(torch.int32)) == 0


@each_kind
@each_init
@settings(max_examples=20)
@given(x=tensors(), bits=BITS)
def test_a_start_is_finite_and_repeatable_for_any_tensor(
    kind: str, init: str, x: Tensor, bits: int
) -> None:
    x = x.float()
    for quantizer in (
        for_weight(kind, x, bits, True, init),
        for_weight(kind, x, bits, False, init),
        for_input(kind, x, bits, init),
    ):
        assert all(torch.isfinite(p).all() for p in quantizer.parameters())
        assert torch.isfinite(quantizer(x)).all()
        before = copy.deepcopy(quantizer.state_dict())
        quantizer.initialise(x)
        assert all(torch.equal(v, before[k]) for k, v in quantizer.state_dict().items())


def test_only_pact_wants_weight_decay_and_only_on_alpha() -> None:
    x = torch.randn(3, 5)
    wanted = {
        (kind, name)
        for kind in families
        for quantizer in (for_weight(kind, x), for_input(kind, x))
        for name in quantizer.decayed
    }
    assert wanted == {("pact", "alpha")}


def test_a_sample_is_spread_evenly_and_always_the_same() -> None:
    x = torch.arange(10_000.0).reshape(10, 1000)
    few = sampled(x, most=100)
    assert 90 <= few.numel() <= 100
    assert (few.diff() == few[1] - few[0]).all()
    assert few[-1] > 9800
    assert torch.equal(few, sampled(x, most=100))
    assert torch.equal(sampled(x), x.flatten())
