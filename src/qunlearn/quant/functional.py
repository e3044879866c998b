"""Low-bit arithmetic: pure functions of tensors, with their gradients in closed form.

Every quantizer here maps `x` to a value on a uniform grid, `s·(k - z)` with an integer code `k` in
`[low, high]`. Gradients pass the rounding by the straight-through estimator, with the mask on the
value *before* rounding. Zero has a code (`z` is an integer), because zero padding and integer
runtimes need it. Only DoReFa's weights, by their definition, have none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from qunlearn.quant import kernels
from qunlearn.quant.fuse import is_fused
from qunlearn.quant.kernels import fit, step_of, wide
from qunlearn.quant.limits import SHARPEST, SMALLEST_SCALE, SOFTEST
from qunlearn.quant.operators import positional


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
    """Round `x` to `s·(k - z)`, with `v = x/s` and `k = round(clamp(v, low - z, high - z)) + z`.

    Ties go to an even `k - z`, as in ONNX's QuantizeLinear.

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


def round_through(x: Tensor) -> Tensor:
    """Round to the nearest integer, with the straight-through gradient."""
    return x + (x.round() - x).detach()


def lsq_gradient_factor(features: int, high: float | Tensor) -> float | Tensor:
    """LSQ's `1/√(N·Qp)`, which brings a scale's gradient to the size of the weights' gradients.

    `features` is N: the number of weights that share the scale, or the number of an activation's
    features *in one sample*, so that the factor does not depend on the batch size.
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
    return step_of(wide(alpha) / top)


def dorefa(weight: Tensor, bits: int, largest: Tensor | None = None) -> Tensor:
    """DoReFa's weights: apply tanh, rescale to `[-1, 1]`, round to `2^bits` levels.

    `2·round(n·(tanh(w)/(2·max|tanh w|) + ½))/n - 1` with `n = 2^bits - 1`. The grid is symmetric
    and so has no zero. `largest` is `max|tanh w|`; pass it to use one per channel, for example. It
    is a constant in the gradient.

    Example:
        >>> dorefa(torch.tensor([-0.5, 0.01, 0.5]), bits=2)
        tensor([-1.0000,  0.3333,  1.0000])
    """
    bounded = torch.tanh(wide(weight))
    largest = bounded.detach().abs().amax() if largest is None else largest
    _, top = code_range(bits, signed=False)
    unit = bounded / (2 * largest.clamp_min(SMALLEST_SCALE)) + 0.5
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
    """Shift a range by less than a step so that zero is a level; straight-through gradient.

    Example:
        >>> snap_range(torch.tensor(-1.1), torch.tensor(1.9), bits=2)
        (tensor(-1.), tensor(2.))
    """
    top = 2**bits - 1
    step = dsq_step(lower, upper, bits)
    zero = (-lower / step).round().clamp(0, top)
    snapped = (-zero * step, (top - zero) * step)
    return lower + (snapped[0] - lower).detach(), upper + (snapped[1] - upper).detach()


def _first_order(backward: Callable[..., Any]) -> Callable[..., Any]:
    """`once_differentiable`, without its overhead where no second derivative is recorded."""
    checked = once_differentiable(backward)

    def wrapper(ctx: Any, gradient: Tensor) -> Any:
        return (checked if torch.is_grad_enabled() else backward)(ctx, gradient)

    return wrapper


def _apply(function: type[torch.autograd.Function], *arguments: object) -> Tensor:
    # `apply` takes longer, and is needed only to record a gradient.
    call = function.apply if torch.is_grad_enabled() else function.forward
    result: Tensor = call(*arguments)  # type: ignore[no-untyped-call]
    return result


class _Round(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    @positional
    def forward(
        x: Tensor,
        scale: Tensor,
        origin: Tensor,
        low: int,
        high: int,
        factor: float | Tensor,
        from_offset: bool,
    ) -> Any:
        return kernels.round_forward(x, scale, origin, low, high, from_offset)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.low, ctx.high, factor, ctx.from_offset = inputs
        factors = (factor,) if isinstance(factor, Tensor) else ()
        ctx.fused, ctx.factor = is_fused(), 1.0 if factors else factor
        ctx.save_for_backward(*tensors, *factors)

    @staticmethod
    @_first_order
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, scale, origin, *factors = ctx.saved_tensors
        to_x, to_scale, to_origin = kernels.round_back(
            x,
            gradient,
            scale,
            origin,
            ctx.low,
            ctx.high,
            ctx.factor,
            ctx.from_offset,
            fused=ctx.fused,
        )
        if factors:
            to_scale, to_origin = to_scale * factors[0], to_origin * factors[0]
        return to_x, _like(to_scale, scale), _like(to_origin, origin), None, None, None, None


class _Pact(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    @positional
    def forward(x: Tensor, alpha: Tensor, bits: int, signed: bool) -> Any:
        _, high = code_range(bits, signed)
        step = pact_scale(alpha, bits, signed)
        zero = torch.zeros_like(step)
        return kernels.round_forward(x, step, zero, -high if signed else 0, high, False)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, alpha, _, ctx.signed = inputs
        ctx.fused = is_fused()
        ctx.save_for_backward(x, alpha)

    @staticmethod
    @_first_order
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, alpha = ctx.saved_tensors
        top = step_of(alpha)
        to_x, to_alpha = kernels.pact_back(x, gradient, top, ctx.signed, fused=ctx.fused)
        return to_x, _like(to_alpha, alpha), None, None


class _Dsq(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    @positional
    def forward(x: Tensor, lower: Tensor, upper: Tensor, alpha: Tensor, bits: int) -> Any:
        step = dsq_step(lower, upper, bits)
        zero = (-lower / step).round()  # an integer up to floating-point error
        return kernels.round_forward(x, step, zero, 0, 2**bits - 1, False)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, lower, upper, alpha, ctx.bits = inputs
        ctx.fused = is_fused()
        ctx.save_for_backward(x, lower, upper, alpha)

    @staticmethod
    @_first_order
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, lower, upper, alpha = ctx.saved_tensors
        a = alpha.clamp(SHARPEST, SOFTEST)
        step = dsq_step(lower, upper, ctx.bits)
        step, a = step + torch.zeros_like(a), a + torch.zeros_like(step)  # broadcast to one shape
        sharpness, stretch = torch.log(2 / a - 1), 1 / (2 * (1 - a))
        to_x, *sums = kernels.soft_back(
            x, gradient, lower, step, sharpness, stretch, 2**ctx.bits - 1, fused=ctx.fused
        )
        to_lower, to_upper, by_sharpness, by_stretch = sums
        # dκ/dα = -2/(α(2-α)); with stretch t = 1/(2(1-α)), dt/dα = 2t².
        slope = by_sharpness * -2 / (a * (2 - a)) + by_stretch * 2 * stretch
        to_alpha = fit(step * stretch * slope, alpha)
        # Outside of its range α gets only the gradient that moves it back into the range.
        outward = ((alpha < SHARPEST) & (to_alpha > 0)) | ((alpha > SOFTEST) & (to_alpha < 0))
        gradients = (to_lower, to_upper, to_alpha.masked_fill(outward, 0.0))
        parameters = (lower, upper, alpha)
        return to_x, *map(_like, map(fit, gradients, parameters), parameters), None


def _like(gradient: Tensor, like: Tensor) -> Tensor:
    """A parameter's gradient in the shape and type of the parameter."""
    if gradient.shape == like.shape and gradient.dtype is like.dtype:
        return gradient
    if gradient.numel() > like.numel():
        gradient = fit(gradient, like)
    return gradient.reshape(like.shape).to(like.dtype)
