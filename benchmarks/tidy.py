"""The results of all studies as one table, and a picture of one of them.

    python benchmarks/tidy.py                        # writes results/results.csv
    python benchmarks/tidy.py --plot STUDY REQUEST   # and AG by method, with the noise floor

Reads what collect.py has written. A row is one network: study, request, method, seed, revision of
the method, figures, seconds, threads, and the commit that recorded it. Trials of a search are rows
too (`kind` is trials).
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib as mpl
from standing import studies

from qunlearn.metrics import average_gap, mean_interval

RESULTS = Path(__file__).parent / "results"
FIGURES = ("FA", "RA", "TA", "MIA", "AG")
COLUMNS = ("study", "request", "kind", "method", "seed", "revision", *FIGURES, "relearned")
COLUMNS += ("seconds", "threads", "commit")


def recorded_in(file: Path) -> str:
    """The commit that last changed what a file holds; empty if it is in none."""
    words = ["git", "log", "-1", "--follow", "--diff-filter=AM", "--format=%h", "--", file.name]
    done = subprocess.run(words, cwd=file.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def rows() -> Iterator[dict[str, Any]]:
    """Every network of every study."""
    for file in studies():
        content = json.loads(file.read_text())
        if not isinstance(content, list):  # the original, or what LiRA says of a method's seeds
            continue
        commit = recorded_in(file)
        for cell in content:
            kind, method, seed = cell["cell"].split("/")
            yield {
                "study": file.parent.name,
                "request": file.stem,
                "kind": kind,
                "method": method,
                "seed": seed.removeprefix("seed").partition("-")[0] if kind == "cells" else 0,
                "revision": cell.get("revision", ""),
                **{name: cell[name] for name in FIGURES},
                "relearned": cell.get("relearned", ""),
                "seconds": round(cell["seconds"], 1),
                "threads": cell["machine"]["threads"],
                "commit": commit,
            }


def plot(study: str, request: str, table: list[dict[str, Any]], file: Path) -> None:
    """AG by method: the mean with its 95 % interval, each seed, and the noise floor."""
    mpl.use("svg")
    from matplotlib import pyplot

    cells: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in sorted(table, key=lambda row: str(row["revision"])):  # the newest revision stays
        if (row["study"], row["request"], row["kind"]) == (study, request, "cells"):
            cells[row["method"]][row["seed"]] = row
    retrains = cells.pop("retrain").values()
    pairs = combinations(({name: row[name] for name in FIGURES[:4]} for row in retrains), 2)
    gaps = {name: [row["AG"] for row in by_seed.values()] for name, by_seed in cells.items()}
    names = sorted(gaps, key=lambda name: mean(gaps[name]), reverse=True)
    figure, axes = pyplot.subplots(figsize=(7, 0.4 * len(names) + 1.2), layout="constrained")
    for place, name in enumerate(names):
        middle, half = mean_interval(gaps[name])
        axes.errorbar(middle, place, xerr=half if len(gaps[name]) > 1 else None, fmt="o", capsize=3)
        axes.plot(gaps[name], [place] * len(gaps[name]), "|", color="0.4")
    if floors := [average_gap(*pair) for pair in pairs]:
        axes.axvline(mean(floors), color="0.4", linestyle="--", label="between Retrains")
        axes.legend(frameon=False)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="average gap to Retrain, in points (small is good)", xlim=(0, None))
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    """Write the table, and the plot if one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", nargs=2, metavar=("STUDY", "REQUEST"))
    args = parser.parse_args()
    table = list(rows())
    with (RESULTS / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    print(f"{RESULTS / 'results.csv'}: {len(table)} rows")
    for file in studies():
        if [file.parent.name, file.stem] == args.plot:
            plot(*args.plot, table, file.with_suffix(".svg"))


if __name__ == "__main__":
    main()
