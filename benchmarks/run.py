"""Ratios measured side by side in one run: `make bench`.

Both sides of a ratio are timed by turns, so that whatever else the machine does hits both. The
figure is the median over the repeats, with the quartiles as its spread. Each entry says why its
reference is the right one. The table is printed, and written to `benchmarks/results/bench.json`.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import nn

import qunlearn as qu
from qunlearn.data import Augmentation
from qunlearn.store.run import machine, versions

REPEATS = 9
RESULTS = Path(__file__).parent / "results" / "bench.json"


@dataclass(frozen=True)
class Ratio:
    name: str
    median: float
    lower: float
    upper: float
    reference: str


def measure(
    name: str, this: Callable[[], None], other: Callable[[], None], reference: str
) -> Ratio:
    this(), other()
    ratios = []
    for _ in range(REPEATS):
        ratios.append(seconds(this) / seconds(other))
    lower, median, upper = statistics.quantiles(ratios, n=4)
    return Ratio(name, median, lower, upper, reference)


def seconds(function: Callable[[], None]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def training_step(spec: qu.QuantSpec, model: str, width: float, batch: int) -> Callable[[], None]:
    net = qu.quantize(qu.ModelSpec(model, 10, 3, 32, width).build(), spec).train()
    for parameter in net.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    images = torch.randn(batch, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (batch,))

    def step() -> None:
        net.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()

    return step


def loader_batch(batch: int) -> Callable[[], None]:
    count = 5000
    images = torch.randint(0, 256, (count, 32, 32, 3), dtype=torch.uint8).numpy()
    labels = torch.randint(0, 10, (count,)).numpy()
    data = qu.Split.make((images, labels)).data
    data = replace(data, augmentation=Augmentation(crop=4, flip=True))
    loader = qu.Loader(data, torch.arange(count), batch)
    loader.batch(0, 0)
    return lambda: (loader.batch(0, 1), None)[1]


def main() -> None:
    torch.manual_seed(0)
    w4a4, w2a32, full = qu.QuantSpec(4, 4), qu.QuantSpec(2, None), qu.QuantSpec(quantizer="none")
    twin = "the same step in full precision: the price of few bits"
    rows = [
        measure(
            "ResNet-18 ×0.25 W4A4 LSQ+ training step, batch 64",
            training_step(w4a4, "resnet18", 0.25, 64),
            training_step(full, "resnet18", 0.25, 64),
            twin,
        ),
        measure(
            "MobileNetV2 ×0.5 W2A32 LSQ+ training step, batch 64",
            training_step(w2a32, "mobilenetv2", 0.5, 64),
            training_step(full, "mobilenetv2", 0.5, 64),
            twin,
        ),
        measure(
            "batching and augmentation, batch 64",
            loader_batch(64),
            training_step(w4a4, "resnet18", 0.25, 64),
            "the training step that waits for it",
        ),
    ]
    for row in rows:
        print(
            f"{row.median:7.3f}  [{row.lower:.3f}, {row.upper:.3f}]  {row.name} / {row.reference}"
        )
    RESULTS.parent.mkdir(exist_ok=True)
    report = {"ratios": [asdict(r) for r in rows], "versions": versions(), "machine": machine()}
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
