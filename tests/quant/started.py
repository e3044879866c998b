"""Quantizers that have seen their first tensor."""

from __future__ import annotations

from torch import Tensor

from qunlearn.quant import Quantizer, families


def for_weight(
    kind: str, weight: Tensor, bits: int = 4, per_channel: bool = False, init: str = "published"
) -> Quantizer:
    quantizer = families[kind].weights(bits, weight, per_channel, init)
    quantizer.initialise(weight)
    return quantizer


def for_input(kind: str, x: Tensor, bits: int = 4, init: str = "published") -> Quantizer:
    quantizer = families[kind].activations(bits, init)
    quantizer.initialise(x)
    return quantizer
