"""A pool of networks: what attacks on single samples tell of each method, beside Retrain.

    python benchmarks/pool.py OUT --data-dir DIR [--models 16] [--methods original,retrain,...]

DIR has CIFAR-10's official binary files. OUT gets an original (one eighth of ResNet-18's width,
W4A4, on 1,500 images without augmentation, so that it memorises them in 20 epochs) and its pool.
`results/pool/` gets a file named as OUT, with a line of JSON for each method; `audit_tables.py`
prints it. Whatever is there is not made again. A core takes 2.6 hours for 16 networks.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from qunlearn.audit.pool_attacks import epsilons
from qunlearn.audit.pool_figures import method_figures
from qunlearn.audit.pool_folder import ORIGINAL, Pool, pool_of
from qunlearn.metrics.epsilon import challenge_score, largest_epsilon
from qunlearn.runs.config import TrainConfig
from qunlearn.runs.metrics import metrics_of
from qunlearn.runs.train import train_run
from qunlearn.store.files import make_folder, write_text
from qunlearn.store.place import named
from qunlearn.store.run import Run
from qunlearn.store.typed import untyped
from qunlearn.study.config import MakePoolConfig
from qunlearn.study.executors.open import opened_executor
from qunlearn.study.pool import train_pool, unlearn_pool

RESULTS = Path(__file__).parent / "results" / "pool"
METHODS = (ORIGINAL, "retrain", "ft", "rl", "salun", "qmul", "oeu", "calibrated")
RECIPE = {
    "dataset": "cifar10",
    "held_out": 0.2,
    "model": "resnet18",
    "width": 0.125,
    "batch_size": 64,
    "lr": 0.05,
    "augment": False,
    "threads": 1,
}


def measured(pool: Pool, method: str, seconds: float) -> dict[str, Any]:
    """One method's row: what the attacks tell, and how well the networks still do."""
    margins = pool.margins(method, {})
    values = epsilons(margins)
    third = pool.plan.models // 3
    runs = [Run.open(pool.unlearned(method, {}, n)) for n in range(pool.plan.models)]
    parts = [metrics_of(run).parts for run in runs]
    kept = "train" if method == ORIGINAL else "retain"
    step = "training" if method == ORIGINAL else "forgetting"
    return {
        "method": method,
        "models": pool.plan.models,
        "candidates": len(pool.plan.candidates),
        "trained_on": len(pool.plan.split_of(0).train),
        "figures": [untyped(figure) for figure in method_figures(margins)],
        "epsilon_median": float(values.median()),
        "epsilon_largest": largest_epsilon(third, third),
        "challenge_score": challenge_score(values),
        "RA": sum(part[kept].accuracy for part in parts) / len(parts),
        "held_out": sum(part["held_out"].accuracy for part in parts) / len(parts),
        "seconds_each": sum(run.info.took(step) or 0 for run in runs) / len(runs),
        "seconds": round(seconds, 1),
    }


def main() -> None:
    """Make what is missing, one method at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--models", type=int, default=16)
    parser.add_argument("--subset", type=int, default=1875)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    config = MakePoolConfig.parse({"models": asked.models, "threads": 1, "workers": asked.workers})
    original, table = asked.out / "original", asked.results / f"{asked.out.resolve().name}.jsonl"
    make_folder(table.parent)
    if not Run.is_complete(original):
        sizes = {"data_dir": asked.data_dir, "subset": asked.subset, "epochs": asked.epochs}
        train_run(TrainConfig.parse({**RECIPE, **sizes}), original, resume=True)
    pool = pool_of(original, config)
    with named(pool.folder), opened_executor(config, pool.folder) as executor:
        train_pool(pool, config, executor)
    network = {"original_sha256": pool.origin.info.model_sha256}
    lines = table.read_text().splitlines() if table.is_file() else []
    rows = [row for row in map(json.loads, lines) if network.items() <= row.items()]
    done = {(row["method"], row["models"]) for row in rows}
    for method in asked.methods.split(","):
        if (method, asked.models) in done:
            continue
        started = time.perf_counter()
        with named(pool.folder), opened_executor(config, pool.folder) as executor:
            unlearn_pool(pool, config, executor, method, {})
        rows.append({**measured(pool, method, time.perf_counter() - started), **network})
        write_text(table, "".join(json.dumps(row) + "\n" for row in rows))
        print(json.dumps(rows[-1]), flush=True)


if __name__ == "__main__":
    main()
