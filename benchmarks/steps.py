"""Training steps side by side: ours, in full precision, Brevitas's, and as papers' code does it."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import torch
from timing import Work
from torch import Tensor, nn

import qunlearn as qu
from qunlearn.quant import fused

W4A4, W2A32, FULL = qu.QuantSpec(4, 4), qu.QuantSpec(2, None), qu.QuantSpec(quantizer="none")
Swap = Callable[[nn.Module, bool], nn.Module]


def build(model: str, width: float, spec: qu.QuantSpec = FULL) -> nn.Module:
    """A network with few bits, or as it is."""
    return qu.quantize(qu.ModelSpec(model, 10, 3, 32, width).build(), spec)


def images(batch: int) -> Tensor:
    """Random images of CIFAR's shape, laid out as training does."""
    return torch.randn(batch, 3, 32, 32).contiguous(memory_format=torch.channels_last)


def step(net: nn.Module, batch: int = 64, compiled: bool = False) -> Work:
    """Forward and backward of one batch."""
    net.train().to(memory_format=torch.channels_last)
    x, y = images(batch), torch.randint(0, 10, (batch,))

    def work() -> None:
        net.zero_grad()
        with fused(compiled):
            loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()

    return work


def forward(net: nn.Module, batch: int = 64) -> Work:
    """A forward pass, with all that is saved for backward."""
    net.train().to(memory_format=torch.channels_last)
    x = images(batch)
    return lambda: net(x)


def swapped(net: nn.Module, swap: Swap) -> nn.Module:
    """The network with each convolution and linear layer swapped; `swap` gets if it is an edge.

    First and last layer get 8 bits, as ours do.
    """
    names = [n for n, m in net.named_modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    for name in names:
        parent = net.get_submodule(name.rpartition(".")[0])
        layer = swap(net.get_submodule(name), name in (names[0], names[-1]))
        setattr(parent, name.rpartition(".")[2], layer)
    return net


def has_brevitas() -> bool:
    """Whether Brevitas is installed; README.md says how."""
    return find_spec("brevitas") is not None


def brevitas(layer: nn.Module, edge: bool) -> nn.Module:
    """Brevitas's layer with learned scales for weight and input, at the same bits."""
    import brevitas.nn as layers
    from brevitas.inject.enum import ScalingImplType
    from brevitas.quant import Int8ActPerTensorFloat, Int8WeightPerTensorFloat

    bits = 8 if edge else 4
    options = {
        "weight_quant": Int8WeightPerTensorFloat,
        "weight_bit_width": bits,
        "weight_scaling_impl_type": ScalingImplType.PARAMETER_FROM_STATS,
        "input_quant": Int8ActPerTensorFloat,
        "input_bit_width": bits,
        "input_collect_stats_steps": 1,
        "bias": layer.bias is not None,
    }
    if isinstance(layer, nn.Linear):
        return layers.QuantLinear(layer.in_features, layer.out_features, **options)
    return layers.QuantConv2d(
        layer.in_channels,
        layer.out_channels,
        layer.kernel_size,
        layer.stride,
        layer.padding,
        groups=layer.groups,
        **options,
    )


class Written(nn.Module):
    """LSQ+ as papers' code writes it: autograd through detached differences."""

    def __init__(self, layer: nn.Module, edge: bool):
        super().__init__()
        self.layer = layer
        bits = 8 if edge else 4
        self.signed, self.unsigned = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1), (0, 2**bits - 1)
        self.weight_scale = nn.Parameter(2 * layer.weight.detach().abs().mean() / 2)
        self.scale = nn.Parameter(torch.tensor(0.2))
        self.offset = nn.Parameter(torch.tensor(0.0))

    def forward(self, x: Tensor) -> Tensor:
        """Round weight and input, then compute."""
        scale = grad_scale(self.scale, (x[0].numel() * self.unsigned[1]) ** -0.5)
        offset = grad_scale(self.offset, (x[0].numel() * self.unsigned[1]) ** -0.5)
        codes = round_pass(((x - offset) / scale).clamp(*self.unsigned))
        x = codes * scale + offset
        w = self.layer.weight
        scale = grad_scale(self.weight_scale, (w.numel() * self.signed[1]) ** -0.5)
        w = round_pass((w / scale).clamp(*self.signed)) * scale
        if isinstance(self.layer, nn.Linear):
            return nn.functional.linear(x, w, self.layer.bias)
        return self.layer._conv_forward(x, w, self.layer.bias)


def grad_scale(x: Tensor, factor: float) -> Tensor:
    """As in the appendix of LSQ."""
    return (x - x * factor).detach() + x * factor


def round_pass(x: Tensor) -> Tensor:
    """As in the appendix of LSQ."""
    return (x.round() - x).detach() + x
