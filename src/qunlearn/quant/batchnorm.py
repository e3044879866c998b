"""BatchNorm in forward passes that are not ordinary training steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _NormBase


class preserve_running_stats:
    """Within this block BatchNorm normalises as its mode says, but updates no running statistics.

    The block works on copies of the buffers. Restoring values in place would break a backward pass
    that runs after the block.
    """

    def __init__(self, model: nn.Module):
        self.norms = [
            module
            for module in model.modules()
            if isinstance(module, _NormBase) and module.track_running_stats
        ]

    def __enter__(self) -> None:
        self.saved = [norm._buffers for norm in self.norms]
        for norm in self.norms:
            norm._buffers = {
                name: None if buffer is None else buffer.clone()
                for name, buffer in norm._buffers.items()
            }

    def __exit__(self, *_: object) -> None:
        for norm, buffers in zip(self.norms, self.saved, strict=True):
            norm._buffers = buffers


@contextmanager
def use_running_stats(model: nn.Module) -> Iterator[None]:
    """Within this block BatchNorm normalises by its running statistics and does not update them."""
    norms = [m for m in model.modules() if isinstance(m, _NormBase) and m.training]
    for norm in norms:
        norm.training = False
    try:
        yield
    finally:
        for norm in norms:
            norm.training = True
