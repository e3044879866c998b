"""Cost: does forgetting the same ten samples take longer on a larger data set?

    python benchmarks/cost.py --data DIR --runs FOLDER [--retained 5000 15000 44990]

Networks (quarter-width ResNet-18 W4A4 on CIFAR-10) are trained for one epoch each: forgetting is
planned in steps, so that its time does not depend on how well they are trained. FOLDER keeps them.
The sizes take turns, repeat by repeat, on one thread in CPU time; a Retrain's epoch is timed too,
and its time is that of as many epochs as `--epochs` says. Written to `results/cost.json`, with a
plot beside it.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
import torch

from qunlearn.data import Split
from qunlearn.methods import forget
from qunlearn.runs.config import TrainConfig
from qunlearn.runs.data import split_of
from qunlearn.runs.model_file import load
from qunlearn.runs.train import train_run
from qunlearn.store.info import machine, versions
from qunlearn.store.run import Run
from qunlearn.training.config import ComputeConfig
from qunlearn.training.devices import make_fabric

RESULTS = Path(__file__).parent / "results" / "cost.json"
SAMPLES = 10
DEPTHS = ("shallow", "deep")


def network(folder: Path, retained: int, data: Path) -> Run:
    """A network that was trained on so many samples, and ten more."""
    path = folder / f"retained-{retained}"
    if not Run.is_complete(path):
        recipe = {
            "dataset": "cifar10",
            "data_dir": data,
            "subset": round((retained + SAMPLES) / 0.9),
            "model": "resnet18",
            "width": 0.25,
            "epochs": 1,
            "batch_size": 64,
            "lr": 0.05,
            "threads": 1,
        }
        train_run(TrainConfig.parse(recipe), path)
    return Run.open(path)


def timed(run: Run, split: Split, method: str, **settings: Any) -> float:
    """CPU seconds of a method, without the relearning probe and the evaluation."""
    model, fabric = load(run.path), make_fabric(ComputeConfig(threads=1))
    started = time.process_time()
    forget(model, split, method, fabric=fabric, probe=False, **settings)
    return time.process_time() - started


def plot(rows: list[dict[str, Any]], file: Path) -> None:
    """Seconds against the number of retained samples."""
    mpl.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.2), layout="constrained")
    for depth, marker in zip(DEPTHS, "os", strict=True):
        sizes = [row["retained"] for row in rows]
        axes.plot(sizes, [row[depth]["median"] for row in rows], marker=marker, label=depth)
    axes.set(xlabel="retained samples", ylabel="CPU seconds", ylim=(0, None))
    axes.set_title(f"Forgetting {SAMPLES} samples", loc="left")
    axes.legend(frameon=False)
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    """Time every size and depth, and a Retrain."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--retained", type=int, nargs="+", default=[5000, 15000, 44990])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--epochs", type=int, nargs="+", default=[80, 40, 20])
    args = parser.parse_args()
    torch.set_num_threads(1)
    runs = [network(args.runs, retained, args.data) for retained in args.retained]
    splits = [split_of(run, args.data) for run in runs]
    trained_on = set.intersection(*({s.data.ids[i] for i in s.train.tolist()} for s in splits))
    ids = sorted(trained_on)[:SAMPLES]
    splits = [split.forget_ids(ids) for split in splits]
    seconds: list[dict[str, list[float]]] = [{depth: [] for depth in DEPTHS} for _ in runs]
    for _ in range(args.repeats):
        for run, split, took in zip(runs, splits, seconds, strict=True):
            for depth in DEPTHS:
                took[depth].append(timed(run, split, "calibrated", depth=depth))
    rows = []
    for run, split, took, epochs in zip(runs, splits, seconds, args.epochs, strict=True):
        epoch = timed(run, split, "ft", epochs=1, batch_size=64)  # the same steps as a Retrain's
        row: dict[str, Any] = {"retained": len(split.retain), "retrain": round(epoch * epochs, 1)}
        row |= {"retrain_epochs": epochs}
        for depth, values in took.items():
            middle = median(values)
            share = 100 * middle / (epoch * epochs)
            row[depth] = {"seconds": values, "median": middle, "percent_of_retrain": share}
        rows.append(row)
        print(json.dumps(row), flush=True)
    largest = {
        depth: max(row[depth]["median"] for row in rows) / min(row[depth]["median"] for row in rows)
        for depth in DEPTHS
    }
    print("largest / smallest:", largest)
    report = {"samples": SAMPLES, "rows": rows, "largest_to_smallest": largest}
    report |= {"versions": versions(), "machine": vars(machine())}
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")
    plot(rows, RESULTS.with_suffix(".svg"))


if __name__ == "__main__":
    main()
