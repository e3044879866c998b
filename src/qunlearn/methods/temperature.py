"""The temperature of a network's predictions: forgetting raises it, and the last layer restores it.

A push that lowers the confidence in some samples lowers it a little in all of them. A network that
never saw the samples is as confident as the network before, but for what it had less to learn
from: in unseen samples, and in the forgotten ones, which it has not seen either. Multiplying all
logits by one number restores that, and no prediction changes.
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
"""The largest factor: a network that needs more has lost more than its temperature."""

CLOSE = 1e-3
"""How exactly the logits must have grown by the factor, of their size."""


def rescale_temperature(model: nn.Module, split: Split, samples: Tensor, wanted: float) -> float:
    """Multiply the logits by the factor that brings the entropy on some samples down to `wanted`.

    The last layer's weight, bias and grid grow by it: integer codes stay as they are. Nothing is
    changed where the entropy is low enough, where that layer is frozen, or where it turns out
    that something else makes the logits.

    Returns:
        The factor; 1 if nothing was changed.
    """
    logits = predict(model, split.data, samples)
    factor = missing_factor(logits, wanted)
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


def missing_factor(logits: Tensor, wanted: float) -> float:
    """By which number, from 1 to `MOST`, logits must be multiplied for this mean entropy.

    >>> round(missing_factor(torch.tensor([[0.0, 1.0]]), wanted=0.5004), 3)
    1.386
    """
    low, high = 1.0, MOST
    if not len(logits) or float(entropy(logits).mean()) <= wanted:
        return low
    while high - low > 1e-6:
        middle = (low + high) / 2
        if float(entropy(middle * logits).mean()) > wanted:
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
