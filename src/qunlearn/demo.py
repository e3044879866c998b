"""The story on embedded data: a 4-bit network beside its full-precision twin."""

from __future__ import annotations

import time
from typing import Any

from qunlearn.data import Split, load_dataset
from qunlearn.quant import QuantSpec, describe, quantize
from qunlearn.training.evaluate import evaluate
from qunlearn.training.train import model_spec, train


def demo(seed: int = 0, epochs: int = 10, width: float = 0.25) -> dict[str, Any]:
    """Train both networks on handwritten digits; their accuracy, size and time."""
    split = Split.make(load_dataset("digits"))
    networks = {}
    for name, spec in (
        ("4 bits (W4A4)", QuantSpec(weights=4, activations=4)),
        ("32 bits", QuantSpec(quantizer="none")),
    ):
        model = quantize(model_spec("resnet18", width, split.data).build(seed), spec)
        started = time.perf_counter()
        train(model, split, epochs=epochs, batch_size=64, lr=0.1, warmup=1, seed=seed, title=name)
        seconds = time.perf_counter() - started
        accuracies = {part: m["accuracy"] for part, m in evaluate(model, split).items()}
        networks[name] = {**accuracies, "bytes": describe(model).bytes, "seconds": seconds}
    return {"data": "digits", "model": "resnet18", "width": width, "networks": networks}
