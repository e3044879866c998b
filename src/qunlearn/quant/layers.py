"""Convolutions and linear layers that round their weights and their input before they compute.

Each is its ordinary layer, keeps its parameters under the same names, and carries two quantizers:
`QuantConv2d(conv, weight_quantizer, activation_quantizer)`. An `nn.Identity` means full precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from qunlearn.quant.fuse import fused, is_fused
from qunlearn.quant.quantizer import Quantizer
from qunlearn.quant.strided import strided_slice

MUCH_WORK = 100
"""How many products a layer must make of each input value for rounding twice to cost little."""

LITTLE = 1 << 19
"""Fewer elements than this are kept as they are: rounding them again would gain little."""

Rounded = dict["QuantLayer", Tensor]
_kept: ContextVar[Rounded | None] = ContextVar("rounded weights", default=None)
_frozen: ContextVar[Rounded | None] = ContextVar("rounded weights that do not learn", default=None)


@contextmanager
def rounding_once(frozen: bool = False) -> Iterator[None]:
    """Within this block a layer rounds its weight once, not in every pass that wants no gradient.

    For scoring many batches by one model: the weights must not change within the block. With
    `frozen`, for training: layers that do not learn round once, the others in every pass. Nothing
    is left behind.
    """
    table = _frozen if frozen else _kept
    token = table.set({})
    try:
        yield
    finally:
        table.reset(token)


@contextmanager
def rounding_again(*made: tuple[Quantizer, Tensor, Tensor]) -> Iterator[None]:
    """Within this block autograd does not keep what was rounded, but rounds again in backward.

    What it was rounded from is kept in any case, for the quantizer's own gradient.

    Args:
        *made: Quantizers, each with what it was given and what it made of it.
    """
    compiled = is_fused()
    again: dict[tuple[int, torch.Size], tuple[Quantizer, Tensor]] = {}

    def pack(saved: Tensor) -> Any:
        return again.get((saved.data_ptr(), saved.shape), saved)

    def unpack(kept: Any) -> Tensor:
        if isinstance(kept, Tensor):
            return kept
        quantizer, x = kept
        with torch.no_grad(), fused(compiled):
            result: Tensor = quantizer.quantize(x)
        return result

    with ExitStack() as stack:
        # Tensors that torch.func transforms have no address, and torch.func.grad refuses hooks.
        # Autograd then saves what was rounded, which gives the same values.
        with suppress(RuntimeError):
            # The shape, too, tells it: of an input without a batch, a view with one is saved.
            again.update({(r.data_ptr(), r.shape): (q, x.detach()) for q, x, r in made})
            stack.enter_context(saved_tensors_hooks(pack, unpack))
        yield


class QuantLayer(nn.Module):
    """The two quantizers of a layer, and the weight as it is computed with."""

    def take(self, layer: Any, weight: nn.Module, activation: nn.Module) -> None:
        """Take over the layer's own parameters, hooks and mode, and the two quantizers."""
        self.weight, self.bias = layer.weight, layer.bias
        self.weight_quantizer = weight
        self.activation_quantizer = activation
        vars(self).update({name: own for name, own in vars(layer).items() if "hook" in name})
        self.train(layer.training)

    def learns(self) -> bool:
        """Whether the weight or its grid may change in training."""
        learned = (self.weight, *self.weight_quantizer.parameters())
        return any(parameter.requires_grad for parameter in learned)

    def rounded(self) -> Tensor:
        """The weight with few bits."""
        kept = None if torch.is_grad_enabled() else _kept.get()
        if kept is None and (frozen := _frozen.get()) is not None and not self.learns():
            # What is made for inference alone cannot be trained with.
            kept = None if torch.is_inference_mode_enabled() else frozen
        result = None if kept is None else kept.get(self)
        if result is None:
            result = self.weight_quantizer(self.weight)
            if kept is not None:
                kept[self] = result
        return result


class _QuantConv(QuantLayer):
    out_channels: int
    groups: int
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: str | tuple[int, ...]

    def __init__(self, conv: Any, weight_quantizer: nn.Module, activation_quantizer: nn.Module):
        super().__init__(
            conv.in_channels,
            conv.out_channels,
            conv.kernel_size,
            conv.stride,
            conv.padding,
            conv.dilation,
            conv.groups,
            bias=conv.bias is not None,
            padding_mode=conv.padding_mode,
            device="meta",  # the parameters are the other layer's
        )
        self.take(conv, weight_quantizer, activation_quantizer)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve the rounded input with the rounded weight."""
        weight = self.rounded()
        stride = self.stride
        convolve: Callable[..., Tensor] = self._conv_forward  # type: ignore[assignment]
        if self.skips():
            whole, x = x, strided_slice(x, stride)
            rounded = self.activation_quantizer(x, whole)
            stride = (1,) * len(stride)
            dense = getattr(nn.functional, f"conv{len(stride)}d")
            convolve = partial(dense, groups=self.groups)
        else:
            # Zero padding comes after rounding: zero is always on the grid.
            rounded = self.activation_quantizer(x)
        with self.saving(
            stride,
            (self.activation_quantizer, x, rounded),
            (self.weight_quantizer, self.weight, weight),
        ):
            result: Tensor = convolve(rounded, weight, self.bias)
        return result

    def skips(self) -> bool:
        """Whether training need not round the whole input: with stride 2, 1×1 looks at a quarter.

        What is left out has no part in any gradient, either. Passes without gradients are left as
        they are, since they may be written down for elsewhere.
        """
        quantizer = self.activation_quantizer
        return (
            max(self.kernel_size) == 1 < max(self.stride)
            and self.padding in ("valid", (0,) * len(self.stride))
            # A class derived from one that is may know nothing of it, nor may a hook.
            and vars(type(quantizer)).get("partial", False)
            and not quantizer._forward_hooks
            and not quantizer._forward_pre_hooks
            and torch.is_grad_enabled()
            and not torch.compiler.is_compiling()
        )

    def saving(
        self, stride: tuple[int, ...], *made: tuple[nn.Module, Tensor, Tensor]
    ) -> AbstractContextManager[None]:
        """Keeps what was rounded for backward only where rounding it again would take long."""
        again = [
            (quantizer, given, rounded)
            for quantizer, given, rounded in made
            if isinstance(quantizer, Quantizer)
            and rounded.requires_grad
            and rounded.numel() >= LITTLE
        ]
        products = self.out_channels // self.groups * math.prod(self.kernel_size)
        much = products >= MUCH_WORK * math.prod(stride)
        return rounding_again(*again) if again and much else nullcontext()


class QuantConv1d(_QuantConv, nn.Conv1d):
    """A one-dimensional convolution with few bits."""


class QuantConv2d(_QuantConv, nn.Conv2d):
    """A two-dimensional convolution with few bits."""


class QuantConv3d(_QuantConv, nn.Conv3d):
    """A three-dimensional convolution with few bits."""


class QuantLinear(QuantLayer, nn.Linear):
    """A linear layer with few bits."""

    def __init__(
        self, linear: nn.Linear, weight_quantizer: nn.Module, activation_quantizer: nn.Module
    ):
        super().__init__(
            linear.in_features, linear.out_features, bias=linear.bias is not None, device="meta"
        )
        self.take(linear, weight_quantizer, activation_quantizer)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply the rounded input by the rounded weight."""
        return nn.functional.linear(self.activation_quantizer(x), self.rounded(), self.bias)


QUANTIZED: dict[type[nn.Module], type[QuantLayer]] = {
    nn.Conv1d: QuantConv1d,
    nn.Conv2d: QuantConv2d,
    nn.Conv3d: QuantConv3d,
    nn.Linear: QuantLinear,
}
"""The layers that can be quantized, each with the class that replaces it."""
