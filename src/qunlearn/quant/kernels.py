"""The elementwise kernels of the quantizers, in torch. kernels.c has the same in C: change both.

Rounding is `s·round(clamp(x/s, low - z, high - z))`: ties go to the even multiple of
`s`, whatever the zero point `z`, as in ONNX's QuantizeLinear.
"""

from __future__ import annotations

import torch
from torch import Tensor

from qunlearn.quant.limits import SMALLEST_SCALE
from qunlearn.quant.operators import kernel


def wide(x: Tensor) -> Tensor:
    """`x` in at least 32 bits: half precision cannot resolve 256 codes and their fractions."""
    return x if x.dtype is torch.float64 else x.float()


def step_of(scale: Tensor) -> Tensor:
    """The step between two codes: the scale, but at least `SMALLEST_SCALE`."""
    return wide(scale).clamp_min(SMALLEST_SCALE)


def zero_point(offset: Tensor, scale: Tensor, low: int, high: int) -> Tensor:
    """The integer code of real zero, for a grid that starts near `offset` (LSQ+'s β).

    `z = clamp(round(low - β/s), low, high)` is an integer, so the grid starts at `s·(low - z)`:
    β rounded to a multiple of the step.
    """
    return _unclamped_zero_point(offset, step_of(scale), low).clamp(low, high)


def _unclamped_zero_point(offset: Tensor, step: Tensor, low: int) -> Tensor:
    return (low - offset / step).round()


def fit(gradient: Tensor, like: Tensor) -> Tensor:
    """Sum a broadcast gradient to the shape of its parameter."""
    return gradient.sum_to_size(like.shape)


@kernel("round_forward", dense=1, shared=2)
def round_forward(
    x: Tensor, scale: Tensor, origin: Tensor, low: int, high: int, from_offset: bool
) -> Tensor:
    """`x` rounded to a grid; `origin` is the zero point or, if `from_offset`, LSQ+'s offset β."""
    step = step_of(scale)
    zero = zero_point(origin, scale, low, high) if from_offset else wide(origin)
    # In place: on a large activation each temporary costs as much as the arithmetic. (vmap
    # supports clamp_min_ and clamp_max_, but not clamp_.)
    v = (wide(x) / step).clamp_min_(low - zero).clamp_max_(high - zero)
    return v.round_().mul_(step).to(x.dtype)


@kernel("round_back", dense=2, shared=2, sums=(0, 1))
def round_back(
    x: Tensor,
    gradient: Tensor,
    scale: Tensor,
    origin: Tensor,
    low: int,
    high: int,
    factor: float,
    from_offset: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients to `x`, `scale` and `origin`, the latter two multiplied by `factor`."""
    gradient, step = wide(gradient), step_of(scale)
    zero = zero_point(origin, scale, low, high) if from_offset else wide(origin)
    # In place again: allocating memory costs more than the arithmetic.
    v = wide(x) / step
    clipped = v.clamp(low - zero, high - zero)
    outside = _where_positive(v.sub_(clipped).abs_(), gradient)
    to_x = (gradient - outside).to(x.dtype)
    # round(v) - v inside; k - z at the clips, which are integers
    inner = v.copy_(clipped).round_().sub_(clipped).mul_(gradient)
    steps = fit(inner.add_(clipped.mul_(outside)), step) * factor
    zeros = -fit(outside.mul_(step), zero) * factor
    if not from_offset:
        return to_x, steps, zeros
    # Where the zero point z is not clipped, dz/dβ = -1/s and dz/ds = β/s².
    moved = zeros * (_unclamped_zero_point(origin, step, low) == zero) / step
    return to_x, steps + fit(moved * origin / step, step), -fit(moved, origin)


def _where_positive(x: Tensor, value: Tensor) -> Tensor:
    """`value` where `x` is positive, else 0; takes a tenth of the time of a mask."""
    result: Tensor = torch.ops.aten.threshold_backward(value, x, 0)
    return result


@kernel("pact_back", dense=2, shared=1, sums=(0,))
def pact_back(x: Tensor, gradient: Tensor, top: Tensor, signed: bool) -> tuple[Tensor, Tensor]:
    """The gradients to `x` and to PACT's `top`."""
    value, gradient = wide(x), wide(gradient)
    above = value >= top
    below = value <= -top if signed else value < 0
    to_top = gradient * above
    if signed:
        to_top = to_top - gradient * below
    return (gradient * ~(above | below)).to(x.dtype), fit(to_top, top)


@kernel("soft_back", dense=2, shared=4, sums=(1, 1, 1, 1))
def soft_back(
    x: Tensor,
    gradient: Tensor,
    lower: Tensor,
    step: Tensor,
    sharpness: Tensor,
    stretch: Tensor,
    top: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of DSQ's soft curve to `x`, both ends, the sharpness and the stretch."""
    v = (wide(x) - lower) / step
    below, above = v < 0, v > top
    inside = ~(below | above)
    v = v.clamp(0, top)  # outside of the range, everything below is multiplied by zero
    i = v.floor().clamp(0, top - 1)
    r = v - i - 0.5
    t = torch.tanh(sharpness * r)
    bend = 1 - t * t
    slope = sharpness * stretch * bend
    soft = i + 0.5 + stretch * t
    inner = gradient * inside
    to_lower = inner * (1 - soft / top - slope * (1 - v / top)) + gradient * below
    to_upper = inner * (soft - slope * v) / top + gradient * above
    return (
        (inner * slope).to(x.dtype),
        fit(to_lower, step),
        fit(to_upper, step),
        fit(inner * bend * r, step),
        fit(inner * t, step),
    )
