"""The base class of quantizers, their grids, and the registry of quantizer families."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from qunlearn.quant.kernels import wide
from qunlearn.quant.limits import SMALLEST_SCALE
from qunlearn.registry import Registry

Initialisation = Literal["published", "mse"]
"""Initialisation of scales: the quantizer's published formula, or least squares."""


@dataclass(frozen=True)
class Grid:
    """The values that a quantizer can output: `scale · (code - zero_point)`, low ≤ code ≤ high."""

    scale: Tensor
    zero_point: Tensor
    low: int
    high: int

    def codes(self, values: Tensor) -> Tensor:
        """The integer code of each quantized value."""
        return (values / self.scale + self.zero_point).round().to(torch.int32)

    def values(self, codes: Tensor) -> Tensor:
        """The values that integer codes stand for."""
        # Runtimes support integer zero points only; the fraction of DoReFa's is added afterwards.
        whole = self.zero_point.ceil()
        return (codes - whole) * self.scale + (whole - self.zero_point) * self.scale


class Quantizer(nn.Module):
    """Rounds a tensor to low-bit values; initialised from the first tensor that it sees.

    A subclass defines the initial parameters (`start`), the computation (`quantize`) and the grid
    of its values (`grid`). `initialised` is a buffer, so that a loaded checkpoint is not
    initialised again.
    """

    decayed: ClassVar[tuple[str, ...]] = ()
    """The names of the parameters that get weight decay."""

    partial: ClassVar[bool] = False
    """Whether `quantize` accepts a part of a layer's input, with the whole input as `whole`."""

    initialised: Tensor

    def __init__(self, bits: int):
        super().__init__()
        self.bits = bits
        self.register_buffer("initialised", torch.tensor(False))
        self._ready = False  # the buffer's value, readable without waiting for a device

    def start(self, x: Tensor) -> None:
        """Set the parameters from the first tensor seen."""
        raise NotImplementedError

    def quantize(self, x: Tensor, whole: Tensor | None = None) -> Tensor:
        """Round `x` to the grid, differentiably; deterministic, since backward may recompute it.

        If the quantizer is `partial` and a layer reads only a part of its input, `x` is that part
        and `whole` is the input.
        """
        raise NotImplementedError

    def grid(self, x: Tensor | None = None) -> Grid:
        """The grid that `x` is rounded to; only quantizers without a learned range need `x`."""
        raise NotImplementedError

    def sizes(self) -> dict[str, Tensor]:
        """For each parameter, the magnitude that a change of it is compared with."""
        raise NotImplementedError

    def stretch(self, weight: Tensor, factor: float) -> Tensor:
        """The weight whose quantized values are `factor` times those of `weight`, with equal codes.

        A grid that does not depend on the weight is rescaled in place.
        """
        return weight * factor

    def forward(self, x: Tensor, whole: Tensor | None = None) -> Tensor:
        """Round `x` to the grid; the first call initialises the parameters from the whole input."""
        if not self._ready and x.numel():
            self.initialise(x if whole is None else whole)
        return self.quantize(x) if whole is None else self.quantize(x, whole)

    @torch.no_grad()
    def initialise(self, x: Tensor) -> None:
        """Initialise the parameters from `x`, whatever their values."""
        self.start(x.detach())
        self.initialised.fill_(True)
        self._ready = True

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._ready = bool(self.initialised)

    def extra_repr(self) -> str:
        """The bits, for `print(model)`."""
        return f"bits={self.bits}"


@dataclass(frozen=True)
class Family:
    """A named quantizer: how to make one for a weight, and one for a layer's input.

    `weights(bits, weight, per_channel, init)` and `activations(bits, init)` return a `Quantizer`.
    """

    weights: Callable[[int, Tensor, bool, Initialisation], Quantizer]
    activations: Callable[[int, Initialisation], Quantizer]


families: Registry[Family] = Registry("quantizer")


def collapsed(model: nn.Module) -> list[str]:
    """The quantizers whose range has collapsed in training; they use `SMALLEST_SCALE`."""
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, Quantizer)
        and any(bool((size <= SMALLEST_SCALE).any()) for size in module.sizes().values())
    ]


def rows(weight: Tensor, per_channel: bool) -> Tensor:
    """A weight as a matrix with one row per scale."""
    return wide(weight.detach()).reshape(weight.shape[0] if per_channel else 1, -1)


def scale_shape(weight: Tensor, per_channel: bool) -> tuple[int, ...]:
    """The shape of a weight's scale: a scalar, or one value per output channel."""
    return (weight.shape[0],) + (1,) * (weight.dim() - 1) if per_channel else ()


def sampled(x: Tensor, most: int = 1 << 16) -> Tensor:
    """At most `most` elements of `x`, evenly spaced and deterministic."""
    flat = x.reshape(-1).float()
    # An odd step, so that it does not sample a single image column.
    step = max(1, -(-flat.numel() // most))
    return flat[:: step | 1]


def sees_negatives(x: Tensor) -> bool:
    """Whether a layer's input needs a signed grid."""
    return bool((x < 0).any())
