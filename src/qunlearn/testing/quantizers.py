"""Checks of a quantizer, on weights and inputs that training may bring about."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from qunlearn.quant import Family, Quantizer, QuantSpec, calibrate, families, quantize
from qunlearn.quant.quantizer import Initialisation
from qunlearn.testing.tensors import copied, difference, nonfinite, without_gradient

Make = Callable[[int, Initialisation], Quantizer]
"""Makes a quantizer that has seen no tensor yet, of so many bits."""

STARTS: tuple[tuple[int, Initialisation], ...] = (
    (2, "published"),
    (4, "mse"),
    (8, "published"),
)
"""The bits and the ways to start that are tried."""

HALF = (torch.float16, torch.bfloat16)

NEARLY = 1e-4
"""How far from its grid a value may lie, in steps: it may be computed in another order."""


def check_quantizer(quantizer: str | Family) -> None:
    """Check that a quantizer keeps what layers, training and export rely on.

    Its values lie on its grid, of at most `2**bits` codes, also where training has moved its
    parameters out of any sense; zero is exact wherever the grid has a whole zero point, and the
    grid of an input has one. It starts from the first tensor that it sees, the same way each time,
    and never again, also not after its state was loaded. Half precision comes back as it went in,
    an empty batch starts nothing, every parameter has a size, gradients are finite, and a
    weight can be stretched.

    Args:
        quantizer: Its name, if it is registered (then it is tried in a network, too), or the
            `Family` itself.

    Raises:
        AssertionError: With a sentence about the first thing that is not so.

    Example:
        >>> check_quantizer("lsq")
    """
    family = families[quantizer] if isinstance(quantizer, str) else quantizer
    for what, x in _tensors():
        for per_channel in (False, True):
            made = partial(_for_weight, family, x, per_channel)
            who = f"The quantizer of weights{' per channel' if per_channel else ''}, {what},"
            _check(who, made, x)
            if x.any():
                _check_stretch(who, made(4, "published"), x)
            for dtype in HALF:  # of a network that is in half precision itself
                start = partial(_for_weight, family, x.to(dtype), per_channel)
                _check_half(who, start, x, dtype)
        _check(f"The quantizer of inputs, {what},", family.activations, x, is_input=True)
    if isinstance(quantizer, str):
        _check_network(quantizer)


def _for_weight(
    family: Family, weight: Tensor, per_channel: bool, bits: int, init: Initialisation
) -> Quantizer:
    return family.weights(bits, weight, per_channel, init)


def _tensors() -> Iterator[tuple[str, Tensor]]:
    """Tensors of every kind that a layer may hold or get, with a name each."""
    chance = torch.Generator().manual_seed(0)
    normal = torch.randn(6, 40, generator=chance)
    yield "normal", normal
    yield "not negative", normal.relu()
    yield "all negative", -normal.abs() - 0.1
    yield "with an outlier", torch.cat([normal[:, :-1], torch.full((6, 1), 1e3)], 1)
    yield "tiny", 1e-6 * normal
    yield "huge", 1e6 * normal
    yield "all zero", torch.zeros(6, 40)
    yield "all the same", torch.full((6, 40), 0.7)


def _check(who: str, make: Make, x: Tensor, is_input: bool = False) -> None:
    for bits, init in STARTS:
        _check_start(who, make(bits, init), x)
        quantizer = make(bits, init)
        quantizer(x)
        _check_grid(who, quantizer, x, is_input)
        _check_gradients(who, quantizer, x)
        for size in (0.01, 10.0, -10.0):
            moved = copy.deepcopy(quantizer)
            _move(moved, size)
            _check_grid(f"{who} its parameters moved by {size:g},", moved, x, is_input)
        _check_state(who, quantizer, make(bits, init), x)
    _check_sizes(who, quantizer)
    for dtype in HALF:
        _check_half(who, make, x, dtype)
    if is_input:
        empty, fresh = x[:0], make(4, "published")
        assert fresh(empty).shape == empty.shape, f"{who} changes the shape of an empty batch."
        assert not fresh.initialised, f"{who} starts from an empty batch."


def _check_start(who: str, quantizer: Quantizer, x: Tensor) -> None:
    before = copied(quantizer)
    output = quantizer(x)
    assert output.shape == x.shape, f"{who} changes the shape of its input."
    assert quantizer.initialised, f"{who} has not started after its first tensor."
    first = copied(quantizer)
    broken = nonfinite({**first, "its output": output})
    assert not broken, f"{who} starts with non-finite values: {broken}."
    quantizer(9 * x + 1)
    assert not difference(first, copied(quantizer)), f"{who} starts again from a second tensor."
    quantizer.initialise(x)
    assert not difference(first, copied(quantizer)), f"{who} starts otherwise from the same tensor."
    quantizer.load_state_dict(before)
    assert torch.equal(quantizer(x), output), (
        f"{who} does not start anew after a state from before its start was loaded."
    )


def _check_grid(who: str, quantizer: Quantizer, x: Tensor, is_input: bool) -> None:
    output, grid = quantizer(x).detach(), quantizer.grid(x)
    assert torch.isfinite(output).all(), f"{who} gives non-finite values."
    codes = grid.codes(output)
    assert grid.high - grid.low < 2**quantizer.bits, f"{who} has more than 2**bits codes."
    assert bool((codes >= grid.low).all() and (codes <= grid.high).all()), (
        f"{who} gives values beyond the ends of its grid."
    )
    off = ((grid.values(codes) - output).abs() / grid.scale).max()
    assert off <= NEARLY, f"{who} gives values up to {off:.2g} steps off its grid."
    whole = bool((grid.zero_point == grid.zero_point.round()).all())
    assert whole or not is_input, f"{who} has no exact zero, which padding needs."
    if whole:
        assert (quantizer(torch.zeros_like(x)) == 0).all(), f"{who} does not leave zero as it is."


def _check_gradients(who: str, quantizer: Quantizer, x: Tensor) -> None:
    x = x.clone().requires_grad_()
    weights = torch.linspace(-1, 1, x.numel()).reshape(x.shape)
    gradients = torch.autograd.grad(
        (weights * quantizer(x)).sum(), [x, *quantizer.parameters()], allow_unused=True
    )
    names = ["its input", *(name for name, _ in quantizer.named_parameters())]
    for name, gradient in zip(names, gradients, strict=True):
        assert gradient is not None, f"{who} hands no gradient to {name}."
        assert torch.isfinite(gradient).all(), f"{who} hands a non-finite gradient to {name}."


def _check_state(who: str, quantizer: Quantizer, fresh: Quantizer, x: Tensor) -> None:
    trained = copy.deepcopy(quantizer)
    _move(trained, 0.01)
    if list(trained.parameters()):
        assert difference(copied(quantizer), copied(trained)), f"{who} shares state with its copy."
    fresh.load_state_dict(trained.state_dict())
    other = 9 * x + 1
    assert torch.equal(fresh(other), trained(other)), f"{who} starts over once its state is loaded."


def _check_sizes(who: str, quantizer: Quantizer) -> None:
    parameters, sizes = dict(quantizer.named_parameters()), quantizer.sizes()
    assert sizes.keys() == parameters.keys(), (
        f"{who} has the parameters {sorted(parameters)}, and sizes of {sorted(sizes)}."
    )
    for name, size in sizes.items():
        assert size.shape == parameters[name].shape, f"{who} has a size of {name} in another shape."
        assert (size > 0).all(), f"{who} has a size of {name} that is not positive."
    unknown = set(quantizer.decayed) - parameters.keys()
    assert not unknown, f"{who} wants weight decay on {sorted(unknown)}, which it has not."


def _check_half(who: str, make: Make, x: Tensor, dtype: torch.dtype) -> None:
    if not 0.01 < float(x.abs().max()) < 100:  # what float16 can hold, and with all its digits
        return
    half = x.to(dtype).requires_grad_()
    exact, quantizer = make(8, "published").float(), make(8, "published")
    output, expected = quantizer(half), exact(half.detach().float())
    assert output.dtype == dtype, f"{who} turns {dtype} into {output.dtype}."
    off = ((output - expected).abs() / exact.grid(half.float()).scale).max()
    assert off <= 2, f"{who} is {off:.1f} steps off in {dtype}."
    (gradient,) = torch.autograd.grad(output.sum(), half)
    assert gradient.dtype == dtype, f"{who} hands {gradient.dtype} back to {dtype}."


@torch.no_grad()
def _check_stretch(who: str, quantizer: Quantizer, weight: Tensor) -> None:
    before = quantizer(weight)
    stretched = quantizer.stretch(weight, 0.5)
    off = (quantizer(stretched) - 0.5 * before).abs() / quantizer.grid(stretched).scale
    assert off.max() <= NEARLY, f"{who} gives other codes once its weight is stretched."


@torch.no_grad()
def _move(quantizer: Quantizer, size: float) -> None:
    """Move the parameters as training might, also to where they make no sense."""
    chance = torch.Generator().manual_seed(1)
    for parameter in quantizer.parameters():
        change = size * torch.randn(parameter.shape, generator=chance)
        parameter.add_(change * (1 + parameter.abs()))


def _check_network(name: str) -> None:
    x = torch.randn(8, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    for options in ({"per_channel": True}, {"per_channel": False, "init": "mse"}):
        spec: Any = QuantSpec(4, 4, name, **options)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))
        quantize(model, spec)
        calibrate(model, x)
        bare = without_gradient(model, x, torch.arange(8) % 5)
        assert not bare, f"Quantizer {name!r} gives {bare} of a network no finite gradient."
