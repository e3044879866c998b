"""The temperature of a network's predictions: forgetting raises it, and the last layer restores it.

A push that lowers the confidence on some samples lowers it a little on all. A network that never
saw the forgotten samples would be about as confident on unseen samples as before. Multiplying all
logits by one factor restores that confidence, and no prediction changes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from qunlearn.data import Split
from qunlearn.metrics import entropy
from qunlearn.quant import Quantizer
from qunlearn.quant.layers import QUANTIZED
from qunlearn.training.inference import predict

MOST = 2.0
"""The largest factor: a network that needs a larger one has lost more than its temperature."""

CLOSE = 1e-3
"""How far the new logits may be from the old ones times the factor, relative to the largest."""


def rescale_temperature(model: nn.Module, split: Split, samples: Tensor, target: float) -> float:
    """Multiply the logits by the factor that brings the entropy on some samples down to `target`.

    The last layer's weight, bias and grid are multiplied by it; integer codes do not change.
    Nothing is changed if the entropy is low enough, if that layer is frozen, or if multiplying it
    does not multiply the logits.

    Returns:
        The factor; 1 if nothing was changed.
    """
    logits = predict(model, split.data, samples)
    factor = missing_factor(logits, target)
    layers = [m for m in model.modules() if type(m) in (*QUANTIZED, *QUANTIZED.values())]
    if factor == 1 or not layers or not layers[-1].weight.requires_grad:
        return 1.0
    before = {name: value.clone() for name, value in layers[-1].state_dict().items()}
    multiply(layers[-1], factor)
    error = (predict(model, split.data, samples) - factor * logits).abs().max()
    if not error <= CLOSE * logits.abs().max():
        layers[-1].load_state_dict(before)
        return 1.0
    return factor


def missing_factor(logits: Tensor, target: float) -> float:
    """The factor, from 1 to `MOST`, that brings the mean entropy of the logits down to `target`.

    >>> round(missing_factor(torch.tensor([[0.0, 1.0]]), target=0.5004), 3)
    1.386
    """
    low, high = 1.0, MOST
    if not len(logits) or float(entropy(logits).mean()) <= target:
        return low
    while high - low > 1e-6:
        middle = (low + high) / 2
        if float(entropy(middle * logits).mean()) > target:
            low = middle
        else:
            high = middle
    return high


@torch.no_grad()
def multiply(layer: Any, factor: float) -> None:
    """Make a layer's output `factor` times as large; in a low-bit layer no code changes."""
    quantizer = getattr(layer, "weight_quantizer", None)
    stretch = quantizer.stretch if isinstance(quantizer, Quantizer) else torch.mul
    layer.weight.copy_(stretch(layer.weight, factor))
    if layer.bias is not None:
        layer.bias.mul_(factor)
