"""BatchNorm by the statistics of the global batch: all processes share their sums.

`torch.nn.SyncBatchNorm` does this on GPUs alone, and replaces the modules of the network. Here the
modules stay, and so do their names and buffers; any device will do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def shared_statistics(model: nn.Module, shared: bool) -> Iterator[None]:
    """Within the block, BatchNorm in training mode normalises by the global batch.

    Args:
        model: The network.
        shared: Whether it does; with a single process there is nothing to share.
    """
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)] if shared else []
    for norm in norms:
        norm.forward = partial(_normalise, norm)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


def _normalise(norm: _BatchNorm, inputs: Tensor) -> Tensor:
    if not (norm.training or norm.running_mean is None):
        return type(norm).forward(norm, inputs)
    axes = [axis for axis in range(inputs.dim()) if axis != 1]
    shape = [1, -1, *[1] * (inputs.dim() - 2)]
    values = inputs.float()
    count = values.new_tensor([values.numel() / values.shape[1]])
    mean, total = _mean(values, axes, count)
    centred = values - mean.view(shape)
    variance, _ = _mean(centred.square(), axes, count)
    _follow(norm, mean.detach(), variance.detach(), float(total))
    normalised = centred * torch.rsqrt(variance + norm.eps).view(shape)
    if norm.weight is not None:
        normalised = normalised * norm.weight.view(shape) + norm.bias.view(shape)
    return normalised.to(inputs.dtype)


def _mean(values: Tensor, axes: list[int], count: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of each channel over all processes, whose shares may differ; and the number."""
    sums: Tensor = _Sum.apply(torch.cat([values.sum(axes), count]))  # type: ignore[no-untyped-call]
    return sums[:-1] / sums[-1], sums[-1].detach()


class _Sum(torch.autograd.Function):
    """The sum over all processes; every process's loss depends on every process's values."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return _summed(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _summed(gradient)


def _summed(values: Tensor) -> Tensor:
    total = values.clone(memory_format=torch.contiguous_format)
    distributed.all_reduce(total)
    return total


def _follow(norm: _BatchNorm, mean: Tensor, variance: Tensor, count: float) -> None:
    """Update the running statistics, as `nn.BatchNorm2d` does."""
    if not norm.track_running_stats or norm.running_mean is None or norm.running_var is None:
        return
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked.add_(1)
    rate = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    norm.running_mean.lerp_(mean, rate)
    norm.running_var.lerp_(variance * count / max(count - 1, 1), rate)
