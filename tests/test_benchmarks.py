"""The benchmarks run; what they measure is not tested."""

import importlib.util
import sys
from pathlib import Path

import qunlearn as qu


def test_both_sides_of_each_ratio_run():
    path = Path(__file__).parent.parent / "benchmarks" / "run.py"
    spec = importlib.util.spec_from_file_location("bench", path)
    bench = importlib.util.module_from_spec(spec)
    sys.modules["bench"] = bench  # dataclasses look their module up
    spec.loader.exec_module(bench)
    row = bench.measure(
        "x",
        bench.loader_batch(8),
        bench.training_step(qu.QuantSpec(), "resnet18", 0.125, 4),
        "y",
    )
    assert 0 < row.lower <= row.median <= row.upper
