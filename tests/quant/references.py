"""The quantizers once more, by other routes: autograd through where and clamp, or plain loops."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

BITS = st.integers(2, 8)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Tensors in float64 of several shapes and sizes; also all-zero, constant and single ones."""
    shape = draw(st.sampled_from([(1,), (1, 1), (9,), (4, 5), (3, 2, 2, 3)]))
    size = draw(st.sampled_from([1e-3, 1.0, 50.0]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    random = torch.randn(shape, generator=generator, dtype=torch.float64) * size
    kind = draw(st.sampled_from(["random", "positive", "zero", "constant"]))
    if kind == "zero":
        return torch.zeros_like(random)
    if kind == "constant":
        return torch.full_like(random, random.flatten()[0].item())
    return random.abs() if kind == "positive" else random


def through(rounded: Tensor, smooth: Tensor) -> Tensor:
    """The straight-through estimator: the value of one, the gradient of the other."""
    return smooth + (rounded - smooth).detach()


def uniform(x: Tensor, scale: Tensor, zero: Tensor, low: int, high: int) -> Tensor:
    v = (x / scale).clamp(low - zero, high - zero)
    return scale * through(v.round(), v)


def zero_point(offset: Tensor, scale: Tensor, low: int, high: int) -> Tensor:
    z = low - offset / scale
    return through(z.round(), z).clamp(low, high)


def pact(x: Tensor, alpha: Tensor, bits: int, signed: bool) -> Tensor:
    bottom = -alpha if signed else torch.zeros_like(alpha)
    outside = (x <= bottom) if signed else (x < bottom)
    clipped = torch.where(x >= alpha, alpha, torch.where(outside, bottom, x))
    step = (alpha / (2 ** (bits - 1) - 1 if signed else 2**bits - 1)).detach()
    return through((clipped / step).round() * step, clipped)


def dsq_soft(x: Tensor, lower: Tensor, upper: Tensor, alpha: Tensor, bits: int) -> Tensor:
    """The paper's own form: φ(x) = s·tanh(k·(x - mᵢ)) with s = 1/(1 - α), k = log(2/α - 1)/Δ."""
    levels = 2**bits - 1
    delta = (upper - lower) / levels
    k, s = torch.log(2 / alpha - 1) / delta, 1 / (1 - alpha)
    i = ((x - lower) / delta).detach().floor().clamp(0, levels - 1)
    middle = lower + (i + 0.5) * delta
    curve = lower + delta * (i + (s * torch.tanh(k * (x - middle)) + 1) / 2)
    return torch.where(x < lower, lower, torch.where(x > upper, upper, curve))


def gradients(output: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Gradients of a sum that weighs every element differently."""
    weights = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).reshape(output.shape)
    return torch.autograd.grad((output * weights).sum(), inputs)


def agree(
    found: Tensor, found_inputs: tuple[Tensor, ...], true: Tensor, true_inputs: tuple[Tensor, ...]
) -> None:
    """Check that two computations give the same output and the same gradients."""
    torch.testing.assert_close(found, true)
    pairs = zip(gradients(found, *found_inputs), gradients(true, *true_inputs), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other)


def leaves(*values: Tensor | float) -> tuple[Tensor, ...]:
    """Fresh float64 leaves that want gradients."""
    return tuple(
        torch.as_tensor(value, dtype=torch.float64).detach().clone().requires_grad_()
        for value in values
    )
