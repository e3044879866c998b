"""Strided slicing whose gradient has the memory layout of its input.

A plain slice computes the same values. Its gradient is contiguous whatever the layout of the input,
and converting it costs more time than the slice saves.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from qunlearn.quant.operators import positional


def strided_slice(x: Tensor, stride: tuple[int, ...]) -> Tensor:
    """Every `stride[i]`-th value along each of the last `len(stride)` axes.

    >>> strided_slice(torch.arange(5.0), (2,))
    tensor([0., 2., 4.])
    """
    result: Tensor = _Slice.apply(x, stride)  # type: ignore[no-untyped-call]
    return result


def _where(stride: tuple[int, ...]) -> tuple[Any, ...]:
    return (..., *(slice(None, None, each) for each in stride))


def _layout(x: Tensor) -> torch.memory_format:
    """The memory layout of `x`, read from its strides: under vmap torch offers no other way."""
    if x.dim() != 4:
        return torch.contiguous_format
    expected = 1
    for axis in (1, 3, 2, 0):
        if x.shape[axis] != 1:
            if x.stride(axis) != expected:
                return torch.contiguous_format
            expected *= x.shape[axis]
    return torch.channels_last


class _Slice(torch.autograd.Function):
    @staticmethod
    @positional
    def forward(x: Tensor, stride: tuple[int, ...]) -> Tensor:
        return x[_where(stride)].contiguous(memory_format=_layout(x))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.stride = inputs
        ctx.shape, ctx.layout = tuple(x.shape), _layout(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Scatter.apply(gradient, ctx.stride, ctx.shape, ctx.layout), None  # type: ignore[no-untyped-call]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Tensor, stride: tuple[int, ...]) -> Any:
        return strided_slice(x.movedim(in_dims[0], 0), stride), 0


class _Scatter(torch.autograd.Function):
    """The adjoint of `_Slice`: the values at their places, zeros elsewhere."""

    @staticmethod
    @positional
    def forward(
        values: Tensor,
        stride: tuple[int, ...],
        shape: tuple[int, ...],
        layout: torch.memory_format,
    ) -> Tensor:
        result = torch.empty(
            shape, dtype=values.dtype, device=values.device, memory_format=layout
        ).zero_()
        result[_where(stride)] = values
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.stride = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return strided_slice(gradient, ctx.stride), None, None, None

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        values: Tensor,
        stride: tuple[int, ...],
        shape: tuple[int, ...],
        layout: torch.memory_format,
    ) -> Any:
        values, shape = values.movedim(in_dims[0], 0), (info.batch_size, *shape)
        return _Scatter.apply(values, stride, shape, torch.contiguous_format), 0  # type: ignore[no-untyped-call]
