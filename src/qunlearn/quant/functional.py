"""The arithmetic of few bits: pure functions of tensors, with their gradients in closed form.

Every quantizer here maps `x` to a value on a uniform grid, `s·(k - z)` with an integer code `k` in
`[low, high]`, and hands gradients through the rounding by the straight-through estimator, with the
mask on the value *before* it is rounded. A code for zero exists (`z` is an integer), because zero
padding and integer runtimes need it; only DoReFa's weights, by their definition, have none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd.function import once_differentiable

from qunlearn.quant.fuse import is_fused, kernel

SMALLEST_SCALE = 1e-10
"""Scales are kept above this, so that a collapsing one can neither divide by zero nor turn over."""

SHARPEST, SOFTEST = 1e-3, 0.5
"""The range of DSQ's α: below, the tanh is a step with no slope left; above, hardly bent at all."""


def code_range(bits: int, signed: bool) -> tuple[int, int]:
    """The smallest and largest integer code of a grid.

    >>> code_range(4, signed=True), code_range(4, signed=False)
    ((-8, 7), (0, 15))
    """
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)


def uniform_quantize(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | float,
    low: int,
    high: int,
    factor: float | Tensor = 1.0,
) -> Tensor:
    """Round `x` to `s·(k - z)`, with `v = x/s + z` and `k = round(clamp(v, low, high))`.

    Gradients: to `x` 1 inside and 0 outside of the clips; to `s` `round(v) - v` inside, `k - z` at
    the clips; to `z` 0 inside, `-s` at the clips. Those to `s` and `z` are multiplied by `factor`.
    This is LSQ.

    Example:
        >>> x = torch.tensor([-9.0, 0.0, 0.6, 9.0])
        >>> uniform_quantize(x, torch.tensor(0.5), 0, -8, 7)
        tensor([-4.0000,  0.0000,  0.5000,  3.5000])
    """
    zero_point = torch.as_tensor(zero_point, dtype=scale.dtype, device=scale.device)
    return _apply(_Round, x, scale, zero_point, low, high, factor, False)


def offset_quantize(
    x: Tensor, scale: Tensor, offset: Tensor, low: int, high: int, factor: float | Tensor = 1.0
) -> Tensor:
    """Round `x` to a grid that starts at `offset`: `uniform_quantize` with that `zero_point`.

    Gradients to scale and offset go through the zero point, too, by the straight-through
    estimator, and are multiplied by `factor`. This is LSQ+.
    """
    return _apply(_Round, x, scale, offset, low, high, factor, True)


def zero_point(offset: Tensor, scale: Tensor, low: int, high: int) -> Tensor:
    """The integer code nearest to real zero, for a grid that is to start at `offset` (LSQ+'s β).

    `z = clamp(round(low - β/s), low, high)` is an integer, so the grid starts at `s·(low - z)`:
    β snapped to a whole step.
    """
    return _free_zero_point(offset, _step(scale), low).clamp(low, high)


def _free_zero_point(offset: Tensor, step: Tensor, low: int) -> Tensor:
    return (low - offset / step).round()


def round_through(x: Tensor) -> Tensor:
    """Round to the nearest integer; the gradient passes as if nothing had been rounded."""
    return x + (x.round() - x).detach()


def wide(x: Tensor) -> Tensor:
    """`x` in at least 32 bits: half precision cannot tell 256 codes and their fractions apart."""
    return x if x.dtype is torch.float64 else x.float()


def lsq_gradient_factor(features: int, high: float | Tensor) -> float | Tensor:
    """LSQ's `1/√(N·Qp)`, which brings a scale's gradient to the size of the weights' gradients.

    `features` is N: a weight's elements (of one channel, where each has its scale), or an
    activation's features *of one sample*, so that the result does not depend on the batch size.
    """
    return (max(features, 1) * high) ** -0.5


def pact(x: Tensor, alpha: Tensor, bits: int, signed: bool = False) -> Tensor:
    """PACT: clip to `[0, α]` (`[-α, α]` if signed) and round to a uniform grid.

    Gradients: to `x` 1 inside, 0 outside; to `α` 1 where `x ≥ α`, -1 where `x ≤ -α`, 0 between.

    Example:
        >>> pact(torch.tensor([-1.0, 0.9, 7.0]), torch.tensor(6.0), bits=2)
        tensor([0., 0., 6.])
    """
    return _apply(_Pact, x, alpha, bits, signed)


def pact_scale(alpha: Tensor, bits: int, signed: bool) -> Tensor:
    """The step between two of PACT's levels; a signed grid leaves out the code without a mirror."""
    _, top = code_range(bits, signed)
    return _step(wide(alpha) / top)


def dorefa(weight: Tensor, bits: int, largest: Tensor | None = None) -> Tensor:
    """DoReFa's weights: squeeze by tanh, spread over `[-1, 1]`, round to `2^bits` levels.

    `2·round(n·(tanh(w)/(2·max|tanh w|) + ½))/n - 1` with `n = 2^bits - 1`. The grid is symmetric
    and so has no zero. `largest` is `max|tanh w|` where the caller has it (per channel, say); it
    counts as a constant in the gradient.

    Example:
        >>> dorefa(torch.tensor([-0.5, 0.01, 0.5]), bits=2)
        tensor([-1.0000,  0.3333,  1.0000])
    """
    squeezed = torch.tanh(wide(weight))
    largest = squeezed.detach().abs().amax() if largest is None else largest
    _, top = code_range(bits, signed=False)
    unit = squeezed / (2 * largest.clamp_min(SMALLEST_SCALE)) + 0.5
    return (2 * round_through(unit * top) / top - 1).to(weight.dtype)


def dsq(x: Tensor, lower: Tensor, upper: Tensor, alpha: Tensor, bits: int) -> Tensor:
    """Differentiable soft quantization: hard levels forward, the slope of a tanh backward.

    With `Δ = (u - l)/n`, `n = 2^bits - 1`, `v = (x - l)/Δ`, `i = floor(v)`, `r = v - i - ½` and
    `κ = log(2/α - 1)`, the soft curve is `l + Δ·(i + ½ + tanh(κr)/(2(1 - α)))`, which meets the
    levels exactly at both ends of each step. The result is the nearest level; all four gradients
    are the soft curve's. `l` and `u` must already hold zero on their grid: see `snap_range`.
    """
    return _apply(_Dsq, x, lower, upper, alpha, bits)


def dsq_step(lower: Tensor, upper: Tensor, bits: int) -> Tensor:
    """The step between two of DSQ's levels."""
    _, top = code_range(bits, signed=False)
    return (wide(upper - lower) / top).clamp_min(SMALLEST_SCALE)


def snap_range(lower: Tensor, upper: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Move a range by less than a step, so that zero is one of its levels; straight through.

    Example:
        >>> snap_range(torch.tensor(-1.1), torch.tensor(1.9), bits=2)
        (tensor(-1.), tensor(2.))
    """
    top = 2**bits - 1
    step = dsq_step(lower, upper, bits)
    zero = (-lower / step).round().clamp(0, top)
    snapped = (-zero * step, (top - zero) * step)
    return lower + (snapped[0] - lower).detach(), upper + (snapped[1] - upper).detach()


def _once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """`once_differentiable`, whose precautions nothing costs where nobody asks for them."""
    careful = once_differentiable(backward)

    def called(ctx: Any, gradient: Tensor) -> Any:
        return (careful if torch.is_grad_enabled() else backward)(ctx, gradient)

    return called


def _apply(function: type[torch.autograd.Function], *inputs: object) -> Tensor:
    call = function.apply
    if not _are_functorch_transforms_active() and not torch.compiler.is_compiling():
        # The same without its search for default arguments, which takes longer than rounding does.
        call = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    result: Tensor = call(*inputs)  # type: ignore[no-untyped-call]
    return result


def _fit(gradient: Tensor, like: Tensor) -> Tensor:
    """Sum a broadcast gradient back to the shape of the parameter that it belongs to."""
    return gradient.sum_to_size(like.shape)


def _step(scale: Tensor) -> Tensor:
    return wide(scale).clamp_min(SMALLEST_SCALE)


# What the kernels compute in torch, kernels.c computes in C: change both.


@kernel("round_forward", dense=1, shared=2)
def _round(
    x: Tensor, scale: Tensor, place: Tensor, low: int, high: int, from_offset: bool
) -> Tensor:
    step = _step(scale)
    zero = zero_point(place, scale, low, high) if from_offset else place
    # In place: on a large activation each temporary costs as much as the arithmetic. (vmap
    # knows no clamp_, but its two halves.)
    v = (wide(x) / step).add_(zero).clamp_min_(low).clamp_max_(high)
    return v.round_().sub_(zero).mul_(step).to(x.dtype)


@kernel("round_back", dense=2, shared=2, sums=2)
def _round_back(
    x: Tensor,
    gradient: Tensor,
    scale: Tensor,
    place: Tensor,
    low: int,
    high: int,
    factor: float,
    from_offset: bool,
) -> tuple[Tensor, ...]:
    gradient, step = wide(gradient), _step(scale)
    zero = zero_point(place, scale, low, high) if from_offset else place
    # In place again: fresh memory costs more than the arithmetic.
    v = (wide(x) / step).add_(zero)
    clipped = v.clamp(low, high)
    outside = _where_positive(v.sub_(clipped).abs_(), gradient)
    passed = (gradient - outside).to(x.dtype)
    # round(v) - v inside; at the clips, which are whole numbers, k - z
    inner = v.copy_(clipped).round_().sub_(clipped).mul_(gradient)
    steps = _fit(inner.add_(clipped.sub_(zero).mul_(outside)), step) * factor
    zeros = -_fit(outside.mul_(step), zero) * factor
    if not from_offset:
        return passed, steps, zeros
    # Where it is not clipped, the zero point moves by -1/s with β, and by β/s² with s.
    moved = zeros * (_free_zero_point(place, step, low) == zero) / step
    return passed, steps + _fit(moved * place / step, step), -_fit(moved, place)


def _where_positive(x: Tensor, value: Tensor) -> Tensor:
    """`value` where `x` is above zero, and 0 elsewhere; a tenth of the time that a mask takes."""
    chosen: Tensor = torch.ops.aten.threshold_backward(value, x, 0)
    return chosen


class _Round(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        scale: Tensor,
        place: Tensor,
        low: int,
        high: int,
        factor: float | Tensor,
        from_offset: bool,
    ) -> Any:
        return _round(x, scale, place, low, high, from_offset)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.low, ctx.high, factor, ctx.from_offset = inputs
        by = (factor,) if isinstance(factor, Tensor) else ()
        ctx.fused, ctx.factor = is_fused(), 1.0 if by else factor
        ctx.save_for_backward(*tensors, *by)

    @staticmethod
    @_once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, scale, place, *by = ctx.saved_tensors
        if is_functorch_wrapped_tensor(gradient):
            x = x + torch.zeros_like(gradient)  # vmap writes in place only to what it maps over
        numbers = (ctx.low, ctx.high, ctx.factor, ctx.from_offset)
        passed, scales, places = _round_back(x, gradient, scale, place, *numbers, fused=ctx.fused)
        if by:
            scales, places = scales * by[0], places * by[0]
        return passed, _as(scales, scale), _as(places, place), None, None, None, None


@kernel("pact_back", dense=2, shared=1, sums=1)
def _pact_back(x: Tensor, gradient: Tensor, top: Tensor, signed: bool) -> tuple[Tensor, ...]:
    value, gradient = wide(x), wide(gradient)
    above = value >= top
    below = value <= -top if signed else value < 0
    to_top = gradient * above
    if signed:
        to_top = to_top - gradient * below
    return (gradient * ~(above | below)).to(x.dtype), _fit(to_top, top)


class _Pact(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, alpha: Tensor, bits: int, signed: bool) -> Any:
        _, high = code_range(bits, signed)
        step = pact_scale(alpha, bits, signed)
        return _round(x, step, torch.zeros_like(step), -high if signed else 0, high, False)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, alpha, _, ctx.signed = inputs
        ctx.fused = is_fused()
        ctx.save_for_backward(x, alpha)

    @staticmethod
    @_once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, alpha = ctx.saved_tensors
        passed, to_alpha = _pact_back(x, gradient, _step(alpha), ctx.signed, fused=ctx.fused)
        return passed, _as(to_alpha, alpha), None, None


@kernel("soft_back", dense=2, shared=4, sums=4)
def _soft_back(
    x: Tensor,
    gradient: Tensor,
    lower: Tensor,
    step: Tensor,
    sharpness: Tensor,
    stretch: Tensor,
    top: int,
) -> tuple[Tensor, ...]:
    v = (wide(x) - lower) / step
    below, above = v < 0, v > top
    inside = ~(below | above)
    v = v.clamp(0, top)  # beyond the range all that follows is multiplied by zero
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
        _fit(to_lower, step),
        _fit(to_upper, step),
        _fit(inner * bend * r, step),
        _fit(inner * t, step),
    )


class _Dsq(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, lower: Tensor, upper: Tensor, alpha: Tensor, bits: int) -> Any:
        step = dsq_step(lower, upper, bits)
        zero = (-lower / step).round()  # an integer already, but for the last bit of a float
        return _round(x, step, zero, 0, 2**bits - 1, False)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, lower, upper, alpha, ctx.bits = inputs
        ctx.fused = is_fused()
        ctx.save_for_backward(x, lower, upper, alpha)

    @staticmethod
    @_once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, lower, upper, alpha = ctx.saved_tensors
        a = alpha.clamp(SHARPEST, SOFTEST)
        step = dsq_step(lower, upper, ctx.bits)
        step, a = step + torch.zeros_like(a), a + torch.zeros_like(step)  # in one shape
        sharpness, stretch = torch.log(2 / a - 1), 1 / (2 * (1 - a))
        passed, *sums = _soft_back(
            x, gradient, lower, step, sharpness, stretch, 2**ctx.bits - 1, fused=ctx.fused
        )
        to_lower, to_upper, by_sharpness, by_stretch = (found.reshape(a.shape) for found in sums)
        # dκ/dα = -2/(α(2-α)); the stretch 1/(2(1-α)) grows by twice its square.
        bent = by_sharpness * -2 / (a * (2 - a)) + by_stretch * 2 * stretch
        found = (to_lower, to_upper, step * stretch * bent)
        parameters = (lower, upper, alpha)
        return passed, *map(_as, map(_fit, found, parameters), parameters), None


def _as(gradient: Tensor, like: Tensor) -> Tensor:
    """A parameter's gradient in its shape and type."""
    if gradient.shape == like.shape and gradient.dtype is like.dtype:
        return gradient
    if gradient.numel() > like.numel():
        gradient = _fit(gradient, like)
    return gradient.reshape(like.shape).to(like.dtype)
