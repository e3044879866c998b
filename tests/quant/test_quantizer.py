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


@each_kind
@each_init
@pytest.mark.parametrize("signed", [True, False])
def test_a_loaded_quantizer_never_starts_over(kind: str, init: str, signed: bool) -> None:
    x = torch.randn(4, 10, generator=torch.Generator().manual_seed(0))
    x = x if signed else x.abs()
    trained = for_input(kind, x, init=init)
    move(trained, seed=1, size=0.01)
    fresh = families[kind].activations(4, init)
    assert not fresh.initialised
    fresh.load_state_dict(trained.state_dict())
    assert fresh.initialised
    other = 100 + 50 * torch.randn(4, 10)
    assert torch.equal(fresh(other), trained(other))
    assert torch.equal(fresh(x), trained(x))
    for name, value in trained.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], value)


@each_kind
def test_only_the_first_tensor_starts_a_quantizer(kind: str) -> None:
    quantizer = families[kind].activations(4, "mse")
    quantizer(torch.linspace(0, 1, 50).reshape(5, 10))
    before = copy.deepcopy(quantizer.state_dict())
    quantizer(torch.linspace(-9, 9, 50).reshape(5, 10))
    assert all(torch.equal(v, before[k]) for k, v in quantizer.state_dict().items())


@each_kind
def test_loading_a_state_from_before_the_start_starts_later(kind: str) -> None:
    quantizer = families[kind].activations(4, "mse")
    before = copy.deepcopy(quantizer.state_dict())
    x = torch.linspace(-1, 1, 50).reshape(5, 10)
    expected = quantizer(x)
    quantizer.load_state_dict(before)
    assert torch.equal(quantizer(x), expected)
    assert quantizer.initialised


@each_kind
def test_copies_go_their_own_way(kind: str) -> None:
    x = torch.linspace(-1, 1, 50).reshape(5, 10)
    quantizer = for_input(kind, x)
    twin = copy.deepcopy(quantizer)
    assert torch.equal(twin(9 * x), quantizer(9 * x))
    move(twin, seed=0, size=1.0)
    assert not torch.equal(twin(9 * x), quantizer(9 * x))


@each_kind
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("per_channel", [True, False])
def test_half_precision_comes_back_as_it_went_in(
    kind: str, dtype: torch.dtype, per_channel: bool
) -> None:
    x = (0.1 * torch.randn(4, 6, generator=torch.Generator().manual_seed(0))).to(dtype)
    for init in ("published", "mse"):
        for quantizer in (
            for_weight(kind, x, 8, per_channel, init),  # with its own parameters in half precision
            for_weight(kind, x.float(), 8, per_channel, init),
            for_input(kind, x, 8, init),
        ):
            y = x.clone().requires_grad_()
            output = quantizer(y)
            assert output.dtype == dtype
            assert (output - x).abs().max() < 0.1  # still the same tensor, roughly
            output.sum().backward()
            assert y.grad is not None
            assert y.grad.dtype == dtype
            assert (quantizer(torch.zeros_like(x)).abs() < 0.02).all()


@each_kind
def test_an_empty_batch_passes_and_starts_nothing(kind: str) -> None:
    quantizer = families[kind].activations(4, "published")
    assert quantizer(torch.zeros(0, 10)).shape == (0, 10)
    assert not quantizer.initialised
    quantizer(torch.linspace(-1, 1, 50).reshape(5, 10))
    assert quantizer.initialised
    assert quantizer(torch.zeros(0, 10)).shape == (0, 10)


@each_kind
def test_every_parameter_has_a_size(kind: str) -> None:
    x = torch.randn(3, 5)
    for quantizer in (for_weight(kind, x, per_channel=True), for_input(kind, x)):
        parameters = dict(quantizer.named_parameters())
        sizes = quantizer.sizes()
        assert sizes.keys() == parameters.keys()
        for name, size in sizes.items():
            assert size.shape == parameters[name].shape
            assert (size > 0).all()


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
