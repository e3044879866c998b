"""Convolutions and linear layers that quantize their weight and their input.

Each is a subclass of the ordinary layer, with the same parameter names and two quantizers:
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

MIN_PRODUCTS = 100
"""Multiplications per input value from which recomputation costs little beside the convolution."""

MIN_ELEMENTS = 1 << 19
"""Number of elements from which recomputation saves enough memory to be worth its time."""

Cache = dict["QuantLayer", Tensor]
_inference_cache: ContextVar[Cache | None] = ContextVar("inference weight cache", default=None)
_frozen_cache: ContextVar[Cache | None] = ContextVar("frozen weight cache", default=None)


@contextmanager
def weight_cache(frozen: bool = False) -> Iterator[None]:
    """Within this block quantized weights are cached for passes without gradients.

    Use it to evaluate many batches with one model. The weights must not change within the block.
    The cache is dropped at the end of the block.

    Args:
        frozen: For training: cache the weights of layers without trainable parameters, and
            quantize those of the other layers in every pass.
    """
    cache = _frozen_cache if frozen else _inference_cache
    token = cache.set({})
    try:
        yield
    finally:
        cache.reset(token)


@contextmanager
def recomputation(*quantized: tuple[Quantizer, Tensor, Tensor]) -> Iterator[None]:
    """Within this block autograd does not save quantized tensors but recomputes them in backward.

    The quantizer's input is saved in any case, for the gradient of the quantizer.

    Args:
        *quantized: Quantizers, each with its input and its output.
    """
    compiled = is_fused()
    recomputed: dict[tuple[int, torch.Size], tuple[Quantizer, Tensor]] = {}

    def pack(saved: Tensor) -> Any:
        return recomputed.get((saved.data_ptr(), saved.shape), saved)

    def unpack(packed: Any) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        quantizer, x = packed
        with torch.no_grad(), fused(compiled):
            result: Tensor = quantizer.quantize(x)
        return result

    with ExitStack() as stack:
        # Tensors that torch.func transforms have no address, and torch.func.grad refuses hooks.
        # Autograd then saves the quantized tensors, which gives the same gradients.
        with suppress(RuntimeError):
            # The shape is part of the key: for an unbatched input, autograd saves a batched view.
            for quantizer, x, result in quantized:
                recomputed[result.data_ptr(), result.shape] = quantizer, x.detach()
            stack.enter_context(saved_tensors_hooks(pack, unpack))
        yield


class QuantLayer(nn.Module):
    """A layer with a weight quantizer and an activation quantizer."""

    def inherit(self, layer: Any, weight: nn.Module, activation: nn.Module) -> None:
        """Take over a full-precision layer's parameters, hooks and mode; set the quantizers."""
        self.weight, self.bias = layer.weight, layer.bias
        self.weight_quantizer = weight
        self.activation_quantizer = activation
        vars(self).update({name: hook for name, hook in vars(layer).items() if "hook" in name})
        self.train(layer.training)

    def is_trainable(self) -> bool:
        """Whether the weight or its quantizer has a parameter that requires a gradient."""
        parameters = (self.weight, *self.weight_quantizer.parameters())
        return any(parameter.requires_grad for parameter in parameters)

    def quantized_weight(self) -> Tensor:
        """The low-bit weight, from the weight cache where there is one."""
        cache = None if torch.is_grad_enabled() else _inference_cache.get()
        if (
            cache is None
            and (frozen := _frozen_cache.get()) is not None
            and not self.is_trainable()
        ):
            # Tensors made in inference mode cannot be used in training.
            cache = None if torch.is_inference_mode_enabled() else frozen
        result = None if cache is None else cache.get(self)
        if result is None:
            result = self.weight_quantizer(self.weight)
            if cache is not None:
                cache[self] = result
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
            device="meta",  # the parameters are those of `conv`
        )
        self.inherit(conv, weight_quantizer, activation_quantizer)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve the quantized input with the quantized weight."""
        weight = self.quantized_weight()
        stride = self.stride
        convolve: Callable[..., Tensor] = self._conv_forward  # type: ignore[assignment]
        if self.slices_input():
            whole, x = x, strided_slice(x, stride)
            quantized = self.activation_quantizer(x, whole)
            stride = (1,) * len(stride)
            dense = getattr(nn.functional, f"conv{len(stride)}d")
            convolve = partial(dense, groups=self.groups)
        else:
            # Zero padding comes after quantization: zero is always on the grid.
            quantized = self.activation_quantizer(x)
        with self.recomputing(
            stride,
            (self.activation_quantizer, x, quantized),
            (self.weight_quantizer, self.weight, weight),
        ):
            result: Tensor = convolve(quantized, weight, self.bias)
        return result

    def slices_input(self) -> bool:
        """Whether to quantize only the part of the input that a strided 1×1 convolution reads.

        With stride 2 that is a quarter of the input. The rest has no gradient either. Passes
        without gradients quantize the whole input, since they may be traced for export.
        """
        quantizer = self.activation_quantizer
        return (
            max(self.kernel_size) == 1 < max(self.stride)
            and self.padding in ("valid", (0,) * len(self.stride))
            # A subclass that overrides `quantize`, or a hook, may expect the whole input.
            and vars(type(quantizer)).get("partial", False)
            and not quantizer._forward_hooks
            and not quantizer._forward_pre_hooks
            and torch.is_grad_enabled()
            and not torch.compiler.is_compiling()
        )

    def recomputing(
        self, stride: tuple[int, ...], *quantized: tuple[nn.Module, Tensor, Tensor]
    ) -> AbstractContextManager[None]:
        """Recomputation in backward where it costs little time and saves much memory."""
        large = [
            (quantizer, x, result)
            for quantizer, x, result in quantized
            if isinstance(quantizer, Quantizer)
            and result.requires_grad
            and result.numel() >= MIN_ELEMENTS
        ]
        products = self.out_channels // self.groups * math.prod(self.kernel_size)
        cheap = products >= MIN_PRODUCTS * math.prod(stride)
        return recomputation(*large) if large and cheap else nullcontext()


class QuantConv1d(_QuantConv, nn.Conv1d):
    """A low-bit one-dimensional convolution."""


class QuantConv2d(_QuantConv, nn.Conv2d):
    """A low-bit two-dimensional convolution."""


class QuantConv3d(_QuantConv, nn.Conv3d):
    """A low-bit three-dimensional convolution."""


class QuantLinear(QuantLayer, nn.Linear):
    """A low-bit linear layer."""

    def __init__(
        self, linear: nn.Linear, weight_quantizer: nn.Module, activation_quantizer: nn.Module
    ):
        super().__init__(
            linear.in_features, linear.out_features, bias=linear.bias is not None, device="meta"
        )
        self.inherit(linear, weight_quantizer, activation_quantizer)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply the quantized input by the quantized weight."""
        return nn.functional.linear(
            self.activation_quantizer(x), self.quantized_weight(), self.bias
        )


QUANTIZED: dict[type[nn.Module], type[QuantLayer]] = {
    nn.Conv1d: QuantConv1d,
    nn.Conv2d: QuantConv2d,
    nn.Conv3d: QuantConv3d,
    nn.Linear: QuantLinear,
}
"""The layers that can be quantized, each with the class that replaces it."""
