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

import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper
from timing import Ratio, Work, by_turns, spread
from torch import Tensor, nn

import qunlearn as qu
from qunlearn.export import OnnxNetwork
from qunlearn.export.network import session_of
from qunlearn.store.info import machine, versions

RESULTS = Path(__file__).parent / "results" / "export.json"
REPEATS = 9


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


def floor() -> Ratio:
    """What the processor allows: nothing but the products of the convolutions' matrices."""
    shapes = products(qu.ModelSpec("resnet18", 10, 3, 32).build())
    return by_turns(
        "ResNet-18's matrix products alone, u8×s8 to s32, batch 1, seconds",
        multiplying(shapes, np.uint8, np.int8),
        "the same products in floats, in the same ONNX Runtime",
        multiplying(shapes, np.float32, np.float32),
        REPEATS,
    )


def products(net: nn.Module) -> list[tuple[int, int, int]]:
    """Each convolution of one image as patches × weight: rows, what is summed over, columns."""
    sizes: list[tuple[int, int, int]] = []

    def note(layer: nn.Module, _: object, out: Tensor) -> None:
        sizes.append((out[0, 0].numel(), layer.weight[0].numel(), len(layer.weight)))

    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(note)
    net.eval()(torch.zeros(1, 3, 32, 32))
    return sizes


def multiplying(shapes: list[tuple[int, int, int]], left: type, right: type) -> Work:
    """A graph of one product for each of the shapes; the right sides are stored in it."""
    drawn, parts = np.random.default_rng(0), []
    for rows, inner, columns in shapes:
        patches, weight = (
            drawn.integers(0, 16, size).astype(kind)
            for size, kind in (((rows, inner), left), ((inner, columns), right))
        )
        parts.append((session_of(product(patches, weight), "a product"), {"patches": patches}))
    return lambda: [session.run(None, given) for _ in range(20) for session, given in parts]


def product(patches: np.ndarray, weight: np.ndarray) -> bytes:
    """An ONNX file of one product, in integers if its sides are."""
    whole = patches.dtype == np.uint8
    kind = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger" if whole else "MatMul", ["patches", "weight"], ["out"])],
        "product",
        [helper.make_tensor_value_info("patches", kind(patches.dtype), patches.shape)],
        [
            helper.make_tensor_value_info(
                "out",
                TensorProto.INT32 if whole else TensorProto.FLOAT,
                (len(patches), weight.shape[1]),
            )
        ],
        [numpy_helper.from_array(weight, "weight")],
    )
    opset = [helper.make_opsetid("", 21)]
    content: bytes = helper.make_model(
        graph, opset_imports=opset, ir_version=10
    ).SerializeToString()
    return content


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
                    REPEATS,
                    0.45,
                )
            )
    rows.append(floor())
    for row in rows:
        print(row)
    report = {"ratios": [asdict(r) for r in rows], "versions": versions(), "machine": machine()}
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
