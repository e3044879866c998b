"""DSQ: hard levels forward, the slope of a tanh between them backward; range and slope learned.

Gong et al., Differentiable Soft Quantization, 2019.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from qunlearn.quant import functional as F
from qunlearn.quant.least_squares import least_squares_range
from qunlearn.quant.limits import SHARPEST, SOFTEST
from qunlearn.quant.quantizer import (
    Family,
    Grid,
    Initialisation,
    Quantizer,
    families,
    rows,
    sampled,
    scale_shape,
)


class Dsq(Quantizer):
    """A tensor on a grid over a learned range [l, u], with a learned softness α."""

    def __init__(self, bits: int, like: Tensor, shape: tuple[int, ...], init: Initialisation):
        super().__init__(bits)
        self.init = init
        self.lower = nn.Parameter(-like.new_ones(shape))
        self.upper = nn.Parameter(like.new_ones(shape))
        self.alpha = nn.Parameter(like.new_full((), 0.2))

    def published(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The published starting range."""
        raise NotImplementedError

    def start(self, x: Tensor) -> None:
        """Set the range to the published one, or to the one with the least squared error."""
        lower, upper = self.least_squares(x) if self.init == "mse" else self.published(x)
        # The range always contains zero and is never empty.
        lower, upper = lower.clamp_max(0), upper.clamp_min(0)
        empty = lower == upper
        self.lower.copy_(torch.where(empty, -1.0, lower).reshape(self.lower.shape))
        self.upper.copy_(torch.where(empty, 1.0, upper).reshape(self.upper.shape))

    def least_squares(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The least-squares range of each row of `x`."""
        top = 2**self.bits - 1
        grids = [least_squares_range(row, 0, top) for row in x.reshape(self.lower.numel(), -1)]
        scale = torch.stack([s for s, _ in grids])
        lower = torch.stack([o for _, o in grids])
        return lower, lower + top * scale

    def quantize(self, x: Tensor, whole: Tensor | None = None) -> Tensor:
        """Round to the nearest level of the snapped range, with the soft curve's gradients."""
        lower, upper = F.snap_range(self.lower, self.upper, self.bits)
        return F.dsq(x, lower, upper, self.alpha, self.bits)

    def grid(self, x: Tensor | None = None) -> Grid:
        """Unsigned codes over the snapped range."""
        top = 2**self.bits - 1
        lower, upper = F.snap_range(self.lower.detach(), self.upper.detach(), self.bits)
        scale = F.dsq_step(lower, upper, self.bits)
        return Grid(scale, (-lower / scale).round(), 0, top)

    def sizes(self) -> dict[str, Tensor]:
        """Both ends are compared with the width of the range; α with its clamped value."""
        width = self.upper - self.lower
        alpha = self.alpha.clamp(SHARPEST, SOFTEST)
        return {"lower": width, "upper": width, "alpha": alpha}


class DsqWeight(Dsq):
    """A weight, whose range starts at three standard deviations either side of the mean."""

    def __init__(self, bits: int, weight: Tensor, per_channel: bool, init: Initialisation):
        super().__init__(bits, weight, scale_shape(weight, per_channel), init)
        self.per_channel = per_channel

    def published(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean ± 3σ, no wider than the weights themselves."""
        matrix = rows(x, self.per_channel)
        mean, deviation = matrix.mean(1), matrix.std(1, correction=0)
        return (
            torch.maximum(mean - 3 * deviation, matrix.amin(1)),
            torch.minimum(mean + 3 * deviation, matrix.amax(1)),
        )

    def stretch(self, weight: Tensor, factor: float) -> Tensor:
        """Both ends of the range grow with the weight."""
        self.lower.mul_(factor)
        self.upper.mul_(factor)
        return weight * factor


class DsqActivation(Dsq):
    """A layer's input, whose range starts at the smallest and largest value of the first batch."""

    partial = True

    def __init__(self, bits: int, init: Initialisation):
        super().__init__(bits, torch.zeros(()), (), init)

    def published(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Minimum and maximum."""
        return x.amin().float(), x.amax().float()

    def least_squares(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Least squares over evenly spaced elements; the whole batch would take too long."""
        return super().least_squares(sampled(x))


families.register("dsq")(Family(weights=DsqWeight, activations=DsqActivation))
