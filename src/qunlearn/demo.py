"""The story on embedded data: a 4-bit network beside its full-precision twin, made to forget."""

from __future__ import annotations

import time
from typing import Any

from torch import nn

from qunlearn.data import Split, load_dataset
from qunlearn.methods import forget
from qunlearn.quant import QuantSpec, describe, quantize
from qunlearn.training.evaluate import evaluate
from qunlearn.training.train import model_spec, train

FORGOTTEN = "3"
"""The digit that is forgotten."""


def demo(seed: int = 0, epochs: int = 8, width: float = 0.25) -> dict[str, Any]:
    """Train both networks on handwritten digits, then make the 4-bit one forget a digit."""
    split = Split.make(load_dataset("digits"))
    networks = {}
    models: list[nn.Module] = []
    for name, spec in (
        ("32 bits", QuantSpec(quantizer="none")),
        ("4 bits (W4A4)", QuantSpec(weights=4, activations=4)),
    ):
        model = quantize(model_spec("resnet18", width, split.data).build(seed), spec)
        started = time.perf_counter()
        train(model, split, epochs=epochs, batch_size=64, lr=0.1, warmup=1, seed=seed, title=name)
        seconds = time.perf_counter() - started
        networks[name] = {
            **_accuracies(model, split),
            "bytes": describe(model).bytes,
            "seconds": seconds,
        }
        models.append(model)
    original = models[-1]
    asked = split.forget_class(FORGOTTEN)
    result = forget(original, asked, "oeu", epochs=5, lr=0.05, batch_size=64, seed=seed)
    states = {
        "before": _accuracies(original, asked),
        "after OEU": _accuracies(result.model, asked),
    }
    return {
        "data": "digits",
        "model": "resnet18",
        "width": width,
        "networks": networks,
        "forgotten": FORGOTTEN,
        "states": states,
        "seconds": result.seconds,
    }


def _accuracies(model: nn.Module, split: Split) -> dict[str, float]:
    return {part: m["accuracy"] for part, m in evaluate(model, split)["parts"].items()}
