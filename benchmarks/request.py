"""A request to forget from the first line read to the last line written, beside a Retrain.

    python benchmarks/request.py RUN [--data DIR] [--share 0.1] [--methods calibrated oeu ft]

RUN is a run that was trained. A Retrain's epochs are all alike, so three are timed and taken for
all of them. One thread, wall time: the machine must be idle. Written to
`benchmarks/results/request.json`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from qunlearn.runs.forget import forget_run
from qunlearn.runs.request import ForgetConfig
from qunlearn.store.info import machine, versions
from qunlearn.store.run import Run

RESULTS = Path(__file__).parent / "results" / "request.json"
TIMED = 3


def parts(run: Path, method: str, request: dict[str, Any]) -> dict[str, float]:
    """The seconds of each part of a request."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        config = ForgetConfig.parse({"run": run, "method": method, "threads": 1, **request})
        made = forget_run(config, Path(folder) / "run")
        whole = time.perf_counter() - started
        epochs = made.history[-1].elapsed
        took = made.info.seconds
        seconds = {
            "epochs": epochs,
            "the method's other work": took["forgetting"] - epochs,
            "measuring": took["evaluation"],
            "reading and writing": whole - took["forgetting"] - took["evaluation"],
            "whole": whole,
        }
    if method == "retrain":
        more = epochs / TIMED * Run.open(run).config["epochs"] - epochs
        seconds |= {"epochs": epochs + more, "whole": whole + more}
    return seconds


def main() -> None:
    """Time each method, and a Retrain."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("run", type=Path)
    options.add_argument("--data", type=Path)
    options.add_argument("--share", type=float, default=0.1)
    options.add_argument("--methods", nargs="+", default=["calibrated", "oeu", "ft"])
    chosen = options.parse_args()
    torch.set_num_threads(1)
    request: dict[str, Any] = {"random": chosen.share}
    if chosen.data:
        request["data_path"] = chosen.data
    by_method = {"retrain": parts(chosen.run, "retrain", request | {"epochs": TIMED})}
    for method in chosen.methods:
        by_method[method] = parts(chosen.run, method, request)
    for method, seconds in by_method.items():
        share = seconds["whole"] / by_method["retrain"]["whole"]
        parts_text = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
        print(f"{share:7.3f}  {method}: {parts_text}")
    report = {"share": chosen.share, "seconds": by_method}
    report |= {"versions": versions(), "machine": machine()}
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
