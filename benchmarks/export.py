"""Exported files beside full precision: speed in ONNX Runtime, and size.

    .venv/bin/python benchmarks/export.py

Full-width networks with drawn weights, since neither figure depends on what they have learned; one
thread, both sides of a ratio by turns. Written to `benchmarks/results/export.json`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from timing import Ratio, by_turns, spread

import qunlearn as qu
from qunlearn.export import OnnxNetwork
from qunlearn.store.run import machine, versions

RESULTS = Path(__file__).parent / "results" / "export.json"


def exported(folder: Path, model: str, spec: qu.QuantSpec, target: str, width: float = 1.0) -> Path:
    """A network's file; it need not agree, since nothing was learned."""
    net = qu.quantize(qu.ModelSpec(model, 10, 3, 32, width).build(), spec)
    x = torch.randn(32, 3, 32, 32)
    qu.calibrate(net.train(), x)
    path = folder / f"{model}-{spec.weights}-{spec.activations}-{spec.quantizer}-{target}.onnx"
    qu.export_onnx(net.eval(), path, x, target=target, least_agreement=0)
    return path


def running(path: Path, batch: int) -> Callable[[], None]:
    network, x = OnnxNetwork.open(path), torch.randn(batch, 3, 32, 32)
    times = 1 if batch > 1 else 20
    return lambda: [network(x) for _ in range(times)] and None


def size(name: str, path: Path, other: Path) -> Ratio:
    share = path.stat().st_size / other.stat().st_size
    return spread(name, "the full-precision file", [share])


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    full = qu.QuantSpec(quantizer="none")
    w4a4, w2 = qu.QuantSpec(4, 4), qu.QuantSpec(2, None, init="mse")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        resnet = exported(folder, "resnet18", full, "compact")
        mobile = exported(folder, "mobilenetv2", full, "compact")
        fast = exported(folder, "resnet18", w4a4, "fast")
        rows = [
            size(
                "ResNet-18 W4A4 compact, bytes",
                exported(folder, "resnet18", w4a4, "compact"),
                resnet,
            ),
            size(
                "ResNet-18 W2 compact, bytes", exported(folder, "resnet18", w2, "compact"), resnet
            ),
            size(
                "MobileNetV2 W2 compact, bytes",
                exported(folder, "mobilenetv2", w2, "compact"),
                mobile,
            ),
            size("ResNet-18 W4A4 fast, bytes", fast, resnet),
        ]
        for batch in (1, 64):
            rows.append(
                by_turns(
                    f"ResNet-18 W4A4 fast, batch {batch}, seconds",
                    running(fast, batch),
                    "the full-precision file, in the same ONNX Runtime",
                    running(resnet, batch),
                    repeats=7,
                    aim=0.45,
                )
            )
    for row in rows:
        print(row)
    report = {"ratios": [asdict(r) for r in rows], "versions": versions(), "machine": machine()}
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
