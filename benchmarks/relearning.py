"""Relearning: what five epochs of fine-tuning on retained samples bring back.

    python benchmarks/relearning.py OUT --data DIR [--methods retrain,calibrated] [--seeds 3]
        [--requests 5 --size 50]

OUT is a folder that `qunlearn compare` has written. Every network in it is fine-tuned by `ft` at
learning rates 0.01 and 0.05, and the accuracy on the forgotten samples is measured before and
after. With `--requests`, the same after the network forgot so many further requests. Each network
is a line of JSON, and the study resumes from what is there.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from torch import Tensor, nn

from qunlearn.data import Split
from qunlearn.data.draw import generator
from qunlearn.methods import find_method, forget
from qunlearn.metrics import accuracy
from qunlearn.runs.data import split_of
from qunlearn.runs.model_file import load
from qunlearn.store.run import Run
from qunlearn.training.config import ComputeConfig
from qunlearn.training.devices import make_fabric
from qunlearn.training.inference import predict

RESULTS = Path(__file__).parent / "results" / "relearning"
RATES, EPOCHS = (0.01, 0.05), 5


def accuracies(model: nn.Module, split: Split, forgotten: Tensor) -> dict[str, float]:
    """Accuracy on what was forgotten, retained and never seen."""
    parts = {"forget": forgotten, "retain": split.retain, "held_out": split.held_out}
    labels = split.data.labels
    return {
        name: round(accuracy(predict(model, split.data, part), labels[part]), 3)
        for name, part in parts.items()
    }


def fine_tuned(
    model: nn.Module, split: Split, forgotten: Tensor, seed: int
) -> dict[str, dict[str, float]]:
    """Accuracies now, and after fine-tuning on what the split retains."""
    figures = {"before": accuracies(model, split, forgotten)}
    for lr in RATES:
        settings = {"epochs": EPOCHS, "lr": lr, "batch_size": 64, "seed": seed + 1000}
        fabric = make_fabric(ComputeConfig(threads=1))
        result = forget(model, split, "ft", fabric=fabric, probe=False, **settings)
        figures[f"lr {lr:g}"] = accuracies(result.model, split, forgotten)
    return figures


def further(
    model: nn.Module, split: Split, method: str, seed: int, requests: int, size: int
) -> tuple[nn.Module, Split]:
    """The network after so many further requests, drawn from what is retained."""
    for number in range(requests):
        drawn = generator("further", seed, number).permutation(len(split.retain))[:size]
        ids = [split.data.ids[i] for i in split.retain[drawn].tolist()]
        split = split.forget_ids(ids)
        if method != "retrain":  # a Retrain is not made again for each request
            fabric = make_fabric(ComputeConfig(threads=1))
            model = forget(model, split, method, fabric=fabric, probe=False, seed=seed).model
    return model, split


def main() -> None:
    """Measure every cell that is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--methods", default="retrain,calibrated")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=0)
    parser.add_argument("--size", type=int, default=50)
    args = parser.parse_args()
    after = f"-after-{args.requests}x{args.size}" if args.requests else ""
    file = RESULTS / f"{args.out.parent.name}-{args.out.name}{after}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    have = {(row["method"], row["seed"], row["revision"]) for row in done}
    for method in args.methods.split(","):
        for seed in range(args.seeds):
            runs = map(Run.open, (args.out / "cells" / method).glob(f"seed{seed}*"))
            run = max(runs, key=lambda each: each.info.revision or 0)
            name = method.partition("[")[0]
            # Further requests are forgotten now, by the present code.
            revision = find_method(name).revision if args.requests else run.info.revision
            if (method, seed, revision) in have:
                continue
            model, split = load(run.path), split_of(run, args.data)
            forgotten = split.forget
            model, split = further(model, split, name, seed, args.requests, args.size)
            row = {"method": method, "seed": seed, "revision": revision}
            row |= fine_tuned(model, split, forgotten, seed)
            with file.open("a") as lines:
                lines.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
