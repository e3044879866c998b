"""A quantized model as an integer runtime sees it: constants instead of quantizers.

Weights become their integer codes, inputs are rounded to fixed grids, by two operators that the
graph's translation knows. BatchNorm is left alone: folded into a weight, a negative factor would
turn -8 into +8, which four bits do not hold.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from qunlearn.quant import Quantizer
from qunlearn.quant.layers import QuantLayer, QuantLinear


@torch.library.custom_op("qunlearn::rounded", mutates_args=())
def rounded(x: Tensor, scale: Tensor, zero: Tensor, least: Tensor, most: Tensor) -> Tensor:
    """`x` on a grid, as QuantizeLinear, DequantizeLinear and Clip compute it."""
    return torch.clamp((x / scale).round() * scale, least, most)


@rounded.register_fake
def _(x: Tensor, scale: Tensor, zero: Tensor, least: Tensor, most: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("qunlearn::dequantized", mutates_args=())
def dequantized(codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """The weight that codes stand for, as DequantizeLinear along the first axis computes it."""
    shape = (-1,) + (1,) * (codes.dim() - 1)
    return (codes.float() - zero.reshape(shape)) * scale.reshape(shape)


@dequantized.register_fake
def _(codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    return torch.empty_like(codes, dtype=scale.dtype)


class InputCodes(nn.Module):
    """Rounds a layer's input to a grid that no longer changes."""

    def __init__(self, quantizer: Quantizer):
        super().__init__()
        grid = quantizer.grid()
        self.register_buffer("scale", grid.scale)
        self.register_buffer("zero", grid.zero_point.to(_container(grid.low)))
        self.register_buffer("least", (grid.low - grid.zero_point) * grid.scale)
        self.register_buffer("most", (grid.high - grid.zero_point) * grid.scale)

    def forward(self, x: Tensor) -> Tensor:
        """Round `x`."""
        result: Tensor = rounded(x, self.scale, self.zero, self.least, self.most)
        return result


class WeightCodes(nn.Module):
    """A weight as integers, with one scale or one for each output channel."""

    rest: Tensor

    def __init__(self, quantizer: Quantizer, weight: Tensor):
        super().__init__()
        grid = quantizer.grid(weight)
        kind = _container(grid.low)
        # PACT's zero lies between two codes: from the upper one it is half a step, added later.
        zero = grid.zero_point.ceil()
        rest = (zero - grid.zero_point) * grid.scale
        per_channel = (-1,) if grid.scale.dim() else ()
        self.register_buffer("codes", grid.codes(quantizer(weight)).to(kind))
        self.register_buffer("scale", grid.scale.reshape(per_channel))
        self.register_buffer("zero", zero.to(kind).reshape(per_channel))
        self.register_buffer("rest", rest if rest.any() else None)

    def forward(self, weight: None) -> Tensor:
        """The weight; the one that the layer hands over is gone."""
        values: Tensor = dequantized(self.codes, self.scale, self.zero)
        return values if self.rest is None else values + self.rest


class RowsLinear(QuantLinear):
    """A linear layer that sees a matrix and has a bias, and so is written as Gemm.

    Of a product of more dimensions ONNX Runtime makes one that rounds its input to 8 bits; of 2-bit
    codes that it has to turn over first, an error.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Multiply all rows at once."""
        if x.dim() == 2:
            return super().forward(x)
        rows = super().forward(x.reshape(-1, x.shape[-1]))
        return rows.reshape(*x.shape[:-1], rows.shape[-1])


@torch.no_grad()
def with_codes(model: nn.Module) -> nn.Module:
    """A copy of the model, in eval mode on the processor, that computes from integer codes."""
    model = copy.deepcopy(model).cpu().float().eval().requires_grad_(False)
    for layer in model.modules():
        if isinstance(layer, QuantLayer):
            weight, inputs = layer.weight_quantizer, layer.activation_quantizer
            if isinstance(weight, Quantizer):
                layer.weight_quantizer = WeightCodes(weight, layer.weight)
                layer.weight = None
                if isinstance(layer, QuantLinear):
                    layer.__class__ = RowsLinear
                    if layer.bias is None:
                        layer.bias = nn.Parameter(torch.zeros(layer.out_features), False)
            if isinstance(inputs, Quantizer):
                layer.activation_quantizer = InputCodes(inputs)
    return model


def weight_bits(model: nn.Module) -> dict[str, int]:
    """The bits of each quantized weight, by the layer's name."""
    layers = {n: m.weight_quantizer for n, m in model.named_modules() if isinstance(m, QuantLayer)}
    return {name: q.bits for name, q in layers.items() if isinstance(q, Quantizer)}


def _container(low: int) -> torch.dtype:
    return torch.int8 if low < 0 else torch.uint8
