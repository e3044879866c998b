"""What an executor costs: cells that sleep, on Ray and in the local pool, with the same workers.

    python benchmarks/executors.py [--cells 100] [--seconds 2] [--workers 4]

A cell sleeps, so that nothing but the executors' own work differs. Wall time from the first cell
submitted to the last one finished, once each; connecting to Ray and starting the first process of
each are timed apart, as startup. Written to `benchmarks/results/executors.json`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from qunlearn.runs.request import ForgetConfig
from qunlearn.store.info import machine, versions
from qunlearn.store.typed import untyped
from qunlearn.study.cells import Cell
from qunlearn.study.executors import ray as on_ray
from qunlearn.study.executors.base import Executor, Finished
from qunlearn.study.executors.config import ExecutorConfig
from qunlearn.study.executors.local import LocalPool

RESULTS = Path(__file__).parent / "results" / "executors.json"
MOST = 1.15


@dataclass(frozen=True)
class SleepingCell(Cell):
    """Does what an executor asks of a cell, and sleeps instead of training."""

    seconds: float = 0.0
    done: bool = False

    def make(self) -> None:
        """Sleep."""
        time.sleep(self.seconds)


def run(executor: Executor, cells: list[SleepingCell]) -> float:
    """The seconds until all cells are finished."""
    started = time.perf_counter()
    executor.submit(cells)
    left = len(cells)
    while left:
        for event in executor.events():
            if isinstance(event, Finished):
                assert event.failure is None, event.failure
                left -= 1
    return time.perf_counter() - started


def cells(run_folder: Path, count: int, seconds: float) -> list[SleepingCell]:
    """Some cells of a run."""
    asked = ForgetConfig.parse({"run": run_folder, "random": 0.1})
    return [
        SleepingCell("sleep", n, asked, run_folder.parent / f"cell{n}", "", seconds=seconds)
        for n in range(count)
    ]


def timed(executor: Executor, run_folder: Path, count: int, seconds: float, workers: int) -> tuple:
    """Startup: the first cell of each worker, which sleeps for no time; then all cells."""
    first = run(executor, cells(run_folder, workers, 0.0))
    return first, run(executor, cells(run_folder, count, seconds))


def main() -> None:
    """Time both, and write down the ratio."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cells", type=int, default=100)
    options.add_argument("--seconds", type=float, default=2.0)
    options.add_argument("--workers", type=int, default=4)
    chosen = options.parse_args()
    from ray.cluster_utils import Cluster

    from qunlearn.runs.config import TrainConfig
    from qunlearn.runs.train import train_run
    from qunlearn.study import workers as pools

    pools.at_a_time = lambda: chosen.workers  # sleeping takes no core
    ray = on_ray.import_ray()
    with tempfile.TemporaryDirectory() as folder:
        tiny = {"dataset": "digits", "subset": 100, "model": "cnn", "epochs": 1, "threads": 1}
        original = train_run(TrainConfig.parse(tiny), Path(folder) / "original").path
        pool = LocalPool(chosen.workers)
        local = timed(pool, original, chosen.cells, chosen.seconds, chosen.workers)
        pool.close(interrupted=False)
        started = time.perf_counter()
        cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": chosen.workers, "include_dashboard": False},
        )
        cluster_seconds = time.perf_counter() - started
        config = ExecutorConfig(executor="ray", address=cluster.address)
        started = time.perf_counter()
        executor = on_ray.on_ray(config, Path(folder) / "study")
        connected = time.perf_counter() - started
        away = timed(executor, original, chosen.cells, chosen.seconds, chosen.workers)
        executor.close(interrupted=False)
        cluster.shutdown()
    ideal = chosen.cells * chosen.seconds / chosen.workers
    ratio = away[1] / local[1]
    print(f"{ratio:.3f}  ≤ {MOST}  Ray / local pool: {away[1]:.1f} s / {local[1]:.1f} s")
    print(f"{ideal:.1f} s of sleep for each worker; startup: local {local[0]:.1f} s, Ray")
    print(f"{connected:.1f} s to connect and check the node, {away[0]:.1f} s for the first cells")
    report = {
        "cells": chosen.cells,
        "seconds": chosen.seconds,
        "workers": chosen.workers,
        "sleep for each worker": ideal,
        "local": {"startup": local[0], "cells": local[1]},
        "ray": {
            "starting a cluster": cluster_seconds,
            "connecting": connected,
            "first cells": away[0],
            "cells": away[1],
        },
        "ratio": ratio,
        "versions": versions() | {"ray": ray.__version__},
        "machine": untyped(machine()),
    }
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
