"""What BatchNorm does in passes that are not ordinary training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _NormBase


class keeping_statistics:
    """Within this block BatchNorm normalises as its mode says, but records nothing.

    It works on copies: writing the old values back would break a backward pass after the block.
    """

    def __init__(self, model: nn.Module):
        self.norms = [
            module
            for module in model.modules()
            if isinstance(module, _NormBase) and module.track_running_stats
        ]

    def __enter__(self) -> None:
        self.kept = [norm._buffers for norm in self.norms]
        for norm in self.norms:
            norm._buffers = {
                name: None if buffer is None else buffer.clone()
                for name, buffer in norm._buffers.items()
            }

    def __exit__(self, *_: object) -> None:
        for norm, buffers in zip(self.norms, self.kept, strict=True):
            norm._buffers = buffers


@contextmanager
def using_running_averages(model: nn.Module) -> Iterator[None]:
    """Within this block BatchNorm normalises by its running averages, and records nothing."""
    norms = [m for m in model.modules() if isinstance(m, _NormBase) and m.training]
    for norm in norms:
        norm.training = False
    try:
        yield
    finally:
        for norm in norms:
            norm.training = True
