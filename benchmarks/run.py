"""Ratios measured side by side in one run: `make bench`.

Both sides of a ratio are timed by turns, so that whatever else the machine does hits both. The
figure is the median over the repeats, with the quartiles as its spread. Each entry says why its
reference is the right one. The table is printed, and written to `benchmarks/results/bench.json`.
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import nn

import qunlearn as qu
from qunlearn.data import Augmentation
from qunlearn.methods import Job
from qunlearn.methods.oeu_paper import OeuPaperConfig, orthogonal_entropy
from qunlearn.store.run import machine, versions
from qunlearn.training.config import ComputeConfig
from qunlearn.training.devices import make_fabric
from qunlearn.training.loop import _arrange, cross_entropy

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
    name: str,
    this: Callable[[], None],
    other: Callable[[], None],
    reference: str,
    repeats: int = REPEATS,
) -> Ratio:
    this(), other()
    ratios = []
    for _ in range(repeats):
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


def forgetting(batch: int) -> tuple[Callable[[], None], Callable[[], None], Callable[[], None]]:
    """An OEU step, its two passes written plainly, and an FT step: W4A4, quarter width."""
    count = 4270  # of which 3840 are trained on: 6 whole batches to forget and 54 to retain
    images = torch.randint(0, 256, (count, 32, 32, 3), dtype=torch.uint8).numpy()
    split = qu.Split.make((images, (torch.arange(count) % 10).numpy()))
    split = split.forget_ids([split.data.ids[row] for row in split.train[:384].tolist()])
    net = qu.quantize(qu.ModelSpec("resnet18", 10, 3, 32, 0.25).build(), qu.QuantSpec(4, 4))
    qu.calibrate(net, split.data.normalise(split.data.images[:batch]))
    _arrange(net.train(), torch.channels_last)
    job = Job(net, split, make_fabric(ComputeConfig()))
    config = OeuPaperConfig(batch_size=batch)
    oeu = orthogonal_entropy(job, config, net)
    ft = cross_entropy(job.fabric, net, job.loader(split.retain, config))
    forget, retain = (
        job.loader(index, config).batch(0, 0) for index in (split.forget, split.retain)
    )
    layout = torch.channels_last
    xf, xr = (each.images.contiguous(memory_format=layout) for each in (forget, retain))
    steps = iter(range(10**9))

    def oeu_step() -> None:
        epoch, step = divmod(next(steps), oeu.steps)
        if not step:
            oeu.report()
        net.zero_grad()
        oeu.gradients(epoch, step)

    def two_passes() -> None:
        net.zero_grad()
        qu.negative_entropy(net(xf)).backward()
        net.zero_grad()
        nn.functional.cross_entropy(net(xr), retain.labels).backward()

    def ft_step() -> None:
        net.zero_grad()
        ft.gradients(0, 0)

    return oeu_step, two_passes, ft_step


def peak_bytes(function: Callable[[], None]) -> int:
    """The most memory that tensors took while a function ran, beyond what they took before."""
    function()
    with torch.profiler.profile(profile_memory=True) as profile:
        function()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    memory = sorted((e["ts"], e["args"]["Bytes"]) for e in events if e["name"] == "[memory]")
    return max(itertools.accumulate(size for _, size in memory))


def attack(points: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """MIA by our solver and by scikit-learn's SVC, on lifelike confidences."""
    sizes = (points // 2, points // 2, points // 20)
    scores = [
        torch.sigmoid(mean + spread * torch.randn(n, dtype=torch.float64))
        for n, mean, spread in zip(sizes, (5.0, 2.0, 3.0), (1.5, 3.5, 3.0), strict=True)
    ]
    return (
        lambda: (qu.metrics.mia_efficacy(*scores), None)[1],
        lambda: (qu.metrics.mia_efficacy(*scores, exact=True), None)[1],
    )


def oeu_memory(batch: int) -> Ratio:
    """(an OEU step's peak - an FT step's) / the size of the gradients."""
    oeu_step, _, ft_step = forgetting(batch)
    gradients = sum(
        4 * p.numel() for p in qu.ModelSpec("resnet18", 10, 3, 32, 0.25).build().parameters()
    )
    extra = [(peak_bytes(oeu_step) - peak_bytes(ft_step)) / gradients for _ in range(3)]
    return Ratio(
        f"OEU step's peak memory beyond an FT step's, batch {batch}",
        statistics.median(extra),
        min(extra),
        max(extra),
        "one copy of the gradients: the least that a projection must keep",
    )


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
        measure(
            "OEU step, W4A4, batches of 64 and 64",
            *forgetting(64)[:2],
            "one forget and one retain forward-backward: nothing of OEU can do without them",
        ),
        oeu_memory(64),
        measure(
            "MIA on 20,000 points",
            *attack(20_000),
            "scikit-learn's SVC, whose figure it gives",
            repeats=3,
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
