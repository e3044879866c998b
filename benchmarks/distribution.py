"""Distribution: are the confidences on forgotten samples distributed as a Retrain's?

    python benchmarks/distribution.py OUT --data DIR [--methods calibrated oeu]

OUT is a folder that `qunlearn compare` has written with two seeds or more. Prints, for each method,
the Kolmogorov-Smirnov distance between its confidences in the true label and those of each Retrain,
and the distance between two Retrains, which is what chance does.
"""

from __future__ import annotations

import argparse
import json
from itertools import combinations
from pathlib import Path
from statistics import mean

from torch import Tensor

from qunlearn.metrics import ks_distance, margin
from qunlearn.runs.data import split_of
from qunlearn.store.run import Run

RESULTS = Path(__file__).parent / "results" / "distribution"


def log_odds(run: Run, labels: Tensor) -> Tensor:
    """The log-odds of the true label of the forgotten samples, one sample each."""
    return margin(run.predictions["forget"], labels)


def main() -> None:
    """Compare every cell of the methods with every Retrain."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--methods", nargs="+", default=["calibrated"])
    args = parser.parse_args()
    cells = args.out / "cells"
    retrains = [Run.open(path) for path in sorted((cells / "retrain").glob("seed*"))]
    split = split_of(retrains[0], args.data)
    labels = split.data.labels[split.forget]
    references = [log_odds(run, labels) for run in retrains]
    report: dict[str, list[float]] = {
        "between Retrains": [ks_distance(a, b) for a, b in combinations(references, 2)]
    }
    for method in args.methods:
        runs = map(Run.open, sorted((cells / method).glob("seed*")))
        report[method] = [
            ks_distance(log_odds(run, labels), reference)
            for run in runs
            for reference in references
        ]
    for name, distances in report.items():
        print(f"{name}: mean {mean(distances):.3f}, largest {max(distances):.3f}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    file = RESULTS / f"{args.out.parent.name}-{args.out.name}.json"
    rounded = {name: [round(each, 4) for each in values] for name, values in report.items()}
    file.write_text(json.dumps(rounded, indent=1) + "\n")


if __name__ == "__main__":
    main()
