"""PACT: inputs clipped at a learned α, with DoReFa's tanh weights.

Choi et al., PACT: Parameterized Clipping Activation, 2018; Zhou et al., DoReFa-Net, 2016.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from qunlearn.quant import functional as F
from qunlearn.quant.kernels import wide
from qunlearn.quant.least_squares import least_squares_scale
from qunlearn.quant.limits import SMALLEST_SCALE
from qunlearn.quant.quantizer import (
    Family,
    Grid,
    Initialisation,
    Quantizer,
    families,
    sampled,
    sees_negatives,
)


class DorefaWeight(Quantizer):
    """DoReFa's weights, rescaled to their original range.

    DoReFa rescales every weight to [-1, 1]. A layer without BatchNorm cannot undo that, and a
    trained network would lose its weights. Multiplied by `max|tanh w|` (a constant in the
    gradient), the codes are the same and the weights have their original range.
    """

    def __init__(self, bits: int, weight: Tensor, per_channel: bool, init: Initialisation):
        super().__init__(bits)
        self.per_channel = per_channel

    def start(self, x: Tensor) -> None:
        """Nothing to initialise: the range follows from the weights."""

    def largest(self, weight: Tensor) -> Tensor:
        """`max|tanh w|`, of the tensor or of each output channel."""
        size = torch.tanh(wide(weight.detach())).abs()
        if self.per_channel:
            size = size.amax(dim=tuple(range(1, weight.dim())), keepdim=True)
        else:
            size = size.amax()
        return size.clamp_min(SMALLEST_SCALE)

    def quantize(self, x: Tensor, whole: Tensor | None = None) -> Tensor:
        """Round as DoReFa does, then restore the range."""
        largest = self.largest(x)
        rounded = F.dorefa(wide(x), self.bits, largest) * largest
        # Bit for bit the value that an integer runtime computes from the code. A difference in the
        # last bit can change a code of the next layer, and from there many others.
        grid = self.grid(x)
        exact = grid.values(grid.codes(rounded.detach()))
        return (rounded + (exact - rounded).detach()).to(x.dtype)

    def grid(self, x: Tensor | None = None) -> Grid:
        """A symmetric grid of an even number of levels: zero lies between the middle two."""
        assert x is not None, "DoReFa's grid follows the weight: pass it"
        top = 2**self.bits - 1
        scale = 2 * self.largest(x) / top
        return Grid(scale, torch.full_like(scale, top / 2), 0, top)

    def sizes(self) -> dict[str, Tensor]:
        """DoReFa has no parameters."""
        return {}

    def stretch(self, weight: Tensor, factor: float) -> Tensor:
        """Multiply tanh w, which the levels follow; beyond ±1 the result is not finite."""
        return torch.atanh(factor * torch.tanh(wide(weight))).to(weight.dtype)


class PactActivation(Quantizer):
    """A layer's input clipped to [0, α]; to [-α, α] if the first batch has negative values."""

    decayed: ClassVar[tuple[str, ...]] = ("alpha",)
    partial = True
    signed: Tensor

    def __init__(self, bits: int, init: Initialisation):
        super().__init__(bits)
        self.init = init
        self.alpha = nn.Parameter(torch.tensor(6.0))
        self.register_buffer("signed", torch.tensor(False))
        self._signed = False  # the buffer's value, readable without waiting for a device

    def start(self, x: Tensor) -> None:
        """Choose a signed or unsigned grid; α is the published 6, or the least-squares range."""
        self._signed = sees_negatives(x)
        self.signed.fill_(self._signed)
        if self.init == "mse":
            low, high = self._codes()
            self.alpha.copy_(least_squares_scale(sampled(x)[None], 0, low, high).squeeze() * high)

    def _codes(self) -> tuple[int, int]:
        low, high = F.code_range(self.bits, self._signed)
        return (-high, high) if self._signed else (low, high)

    def quantize(self, x: Tensor, whole: Tensor | None = None) -> Tensor:
        """Clip and round, with PACT's gradient to α."""
        return F.pact(x, self.alpha, self.bits, self._signed)

    def grid(self, x: Tensor | None = None) -> Grid:
        """Codes from zero to the top, mirrored if signed."""
        scale = F.pact_scale(self.alpha.detach(), self.bits, self._signed)
        return Grid(scale, torch.zeros_like(scale), *self._codes())

    def sizes(self) -> dict[str, Tensor]:
        """A change of α is compared with α."""
        return {"alpha": self.alpha}

    def _load_from_state_dict(self, *args: object, **kwargs: object) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._signed = bool(self.signed)


families.register("pact")(Family(weights=DorefaWeight, activations=PactActivation))
