"""LSQ and LSQ+: the scale, and for LSQ+ inputs the offset too, are learned.

Esser et al., Learned Step Size Quantization, 2019; Bhalgat et al., LSQ+, 2020.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from qunlearn.quant import functional as F
from qunlearn.quant.kernels import step_of, zero_point
from qunlearn.quant.least_squares import least_squares_range, least_squares_scale
from qunlearn.quant.quantizer import (
    Family,
    Grid,
    Initialisation,
    Quantizer,
    families,
    rows,
    sampled,
    scale_shape,
    sees_negatives,
)


class LsqWeight(Quantizer):
    """A weight on a symmetric grid with a learned scale, per tensor or per output channel."""

    def __init__(self, bits: int, weight: Tensor, per_channel: bool, init: Initialisation):
        super().__init__(bits)
        self.init, self.per_channel = init, per_channel
        self.low, self.high = F.code_range(bits, signed=True)
        self.scale = nn.Parameter(weight.new_ones(scale_shape(weight, per_channel)))

    def published(self, matrix: Tensor) -> Tensor:
        """LSQ's starting scale, `2·mean|w|/√Qp`, for each row."""
        return 2 * matrix.abs().mean(1) / math.sqrt(self.high)

    def start(self, x: Tensor) -> None:
        """Set the scale by the published formula or by least squares."""
        matrix = rows(x, self.per_channel)
        if self.init == "mse":
            scale = least_squares_scale(matrix, 0, self.low, self.high)
        else:
            scale = self.published(matrix)
        # A row of zeros determines no scale: any grid is exact there.
        scale = torch.where(scale > 0, scale, torch.full_like(scale, 1 / self.high))
        self.scale.copy_(scale.reshape(self.scale.shape))

    def quantize(self, x: Tensor, whole: Tensor | None = None) -> Tensor:
        """Round with the LSQ gradient, scaled by the number of weights that share the scale."""
        factor = F.lsq_gradient_factor(x.numel() // self.scale.numel(), self.high)
        return F.uniform_quantize(x, self.scale, 0, self.low, self.high, factor)

    def grid(self, x: Tensor | None = None) -> Grid:
        """Signed codes around zero."""
        scale = step_of(self.scale.detach())
        return Grid(scale, torch.zeros_like(scale), self.low, self.high)

    def sizes(self) -> dict[str, Tensor]:
        """A change of the scale is compared with the scale."""
        return {"scale": self.scale}

    def stretch(self, weight: Tensor, factor: float) -> Tensor:
        """Scale and weight are multiplied by the same factor."""
        self.scale.mul_(factor)
        return weight * factor


class LsqPlusWeight(LsqWeight):
    """LSQ+'s weights: LSQ with an initial scale from the weights' standard deviation."""

    def published(self, matrix: Tensor) -> Tensor:
        """LSQ+'s starting scale, `max(|μ-3σ|, |μ+3σ|)/2^(b-1)`, for each row."""
        mean, deviation = matrix.mean(1), matrix.std(1, correction=0)
        size: Tensor = (mean.abs() + 3 * deviation) / 2 ** (self.bits - 1)
        return size


class LsqActivation(Quantizer):
    """A layer's input with a learned scale; the grid is signed if the first batch needs it."""

    partial = True
    zero_point: Tensor

    def __init__(self, bits: int, init: Initialisation):
        super().__init__(bits)
        self.init = init
        self.low, self.high = F.code_range(bits, signed=False)
        self.scale = nn.Parameter(torch.ones(()))
        # A signed grid is the unsigned one with its zero in the middle.
        self.register_buffer("zero_point", torch.zeros(()))

    def start(self, x: Tensor) -> None:
        """Choose the sign of the grid; set the scale to `2·mean|x|/√Qp`, or by least squares."""
        x = x.float()
        self.zero_point.fill_(2 ** (self.bits - 1) if sees_negatives(x) else 0)
        if self.init == "mse":
            scale = least_squares_scale(
                sampled(x)[None], self.zero_point, self.low, self.high
            ).squeeze()
        else:
            scale = 2 * x.abs().mean() / torch.sqrt(self.high - self.zero_point)
        self.scale.copy_(scale if scale > 0 else torch.tensor(1 / self.high))

    def quantize(self, x: Tensor, whole: Tensor | None = None) -> Tensor:
        """Round with the LSQ gradient, scaled by the features of one sample."""
        features = (x if whole is None else whole).shape[1:].numel()
        factor = F.lsq_gradient_factor(features, self.high - self.zero_point)
        return F.uniform_quantize(x, self.scale, self.zero_point, self.low, self.high, factor)

    def grid(self, x: Tensor | None = None) -> Grid:
        """Unsigned codes, with zero at the bottom or in the middle."""
        scale = step_of(self.scale.detach())
        return Grid(scale, self.zero_point, self.low, self.high)

    def sizes(self) -> dict[str, Tensor]:
        """A change of the scale is compared with the scale."""
        return {"scale": self.scale}


class LsqPlusActivation(Quantizer):
    """A layer's input with a learned scale and a learned offset, snapped so that zero is exact."""

    partial = True

    def __init__(self, bits: int, init: Initialisation):
        super().__init__(bits)  # LSQ+ activations start by least squares with either `init`
        self.low, self.high = F.code_range(bits, signed=False)
        self.scale = nn.Parameter(torch.ones(()))
        self.offset = nn.Parameter(torch.zeros(()))

    def start(self, x: Tensor) -> None:
        """Set scale and offset to the grid with the least squared error."""
        scale, offset = least_squares_range(sampled(x), self.low, self.high)
        self.scale.copy_(scale)
        self.offset.copy_(offset)

    def quantize(self, x: Tensor, whole: Tensor | None = None) -> Tensor:
        """Round with the LSQ+ gradient, scaled by the features of one sample."""
        features = (x if whole is None else whole).shape[1:].numel()
        factor = F.lsq_gradient_factor(features, self.high)
        return F.offset_quantize(x, self.scale, self.offset, self.low, self.high, factor)

    def grid(self, x: Tensor | None = None) -> Grid:
        """Unsigned codes, with the zero point that follows from the offset."""
        scale = step_of(self.scale.detach())
        zero = zero_point(self.offset.detach(), scale, self.low, self.high)
        return Grid(scale, zero, self.low, self.high)

    def sizes(self) -> dict[str, Tensor]:
        """A change of the scale is compared with the scale, one of the offset with the range."""
        return {"scale": self.scale, "offset": self.scale * self.high}


families.register("lsq+")(Family(weights=LsqPlusWeight, activations=LsqPlusActivation))
families.register("lsq")(Family(weights=LsqWeight, activations=LsqActivation))
