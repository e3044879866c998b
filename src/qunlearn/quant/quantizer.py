"""What a quantizer is: a small module with a grid, and its name in the table of quantizers."""

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
"""How scales start: by each quantizer's published formula, or by least squares."""


@dataclass(frozen=True)
class Grid:
    """The values that a quantizer can give: `scale · (code - zero_point)`, low ≤ code ≤ high."""

    scale: Tensor
    zero_point: Tensor
    low: int
    high: int

    def codes(self, values: Tensor) -> Tensor:
        """The integer code of each quantized value."""
        return (values / self.scale + self.zero_point).round().to(torch.int32)

    def values(self, codes: Tensor) -> Tensor:
        """The values that integer codes stand for."""
        # Runtimes know whole zero points only: what is left of DoReFa's is added after, as there.
        whole = self.zero_point.ceil()
        return (codes - whole) * self.scale + (whole - self.zero_point) * self.scale


class Quantizer(nn.Module):
    """Rounds a tensor to few bits; its parameters start from the first tensor that it sees.

    A kind of quantizer says how its parameters start (`start`), what it computes (`quantize`) and
    which grid its values lie on (`grid`). Whether they have started is a buffer, so that a loaded
    checkpoint never starts over.
    """

    decayed: ClassVar[tuple[str, ...]] = ()
    """The names of those of its parameters that want weight decay."""

    partial: ClassVar[bool] = False
    """Whether `quantize` can be given a part of a layer's input, with the whole beside it."""

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
        """Round `x` to the grid, differentiably; the same again when a layer asks in backward.

        If it is `partial` and a layer needs but a part of its input, `whole` is the input.
        """
        raise NotImplementedError

    def grid(self, x: Tensor | None = None) -> Grid:
        """The grid that `x` is rounded to; only quantizers with no range of their own need `x`."""
        raise NotImplementedError

    def sizes(self) -> dict[str, Tensor]:
        """For each parameter, the size that a change of it must be measured against."""
        raise NotImplementedError

    def stretch(self, weight: Tensor, factor: float) -> Tensor:
        """The weight that is rounded to `factor` times what this one is, with the same codes.

        A grid that does not follow the weight by itself is stretched along.
        """
        return weight * factor

    def forward(self, x: Tensor, whole: Tensor | None = None) -> Tensor:
        """Round `x` to the grid, starting from the whole if this is the first tensor seen."""
        if not self._ready and x.numel():
            self.initialise(x if whole is None else whole)
        return self.quantize(x) if whole is None else self.quantize(x, whole)

    @torch.no_grad()
    def initialise(self, x: Tensor) -> None:
        """Start the parameters from `x`, whatever they were."""
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
    """The quantizers whose range training has closed; they compute with the smallest scale."""
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, Quantizer)
        and any(bool((size <= SMALLEST_SCALE).any()) for size in module.sizes().values())
    ]


def rows(weight: Tensor, per_channel: bool) -> Tensor:
    """A weight as a matrix with one row for each scale that it gets."""
    return wide(weight.detach()).reshape(weight.shape[0] if per_channel else 1, -1)


def scale_shape(weight: Tensor, per_channel: bool) -> tuple[int, ...]:
    """The shape of a weight's scale: one number, or one for each output channel."""
    return (weight.shape[0],) + (1,) * (weight.dim() - 1) if per_channel else ()


def sampled(x: Tensor, most: int = 1 << 16) -> Tensor:
    """At most `most` elements of `x`, evenly spaced and always the same ones."""
    flat = x.reshape(-1).float()
    # A step that is coprime to any power of two, so that it does not walk along one image column.
    step = max(1, -(-flat.numel() // most))
    return flat[:: step | 1]


def sees_negatives(x: Tensor) -> bool:
    """Whether a layer's input needs a signed grid."""
    return bool((x < 0).any())
