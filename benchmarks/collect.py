"""The figures of a study's finished cells, without its networks: one JSON file for each request.

    python benchmarks/collect.py OUT     # OUT is what `qunlearn reproduce --out OUT` has written

Trials of a search are listed beside the cells, so that it can be seen what was chosen from. What
LiRA finds is of a method's seeds together, and has a file of its own; so has the original.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from qunlearn.metrics import average_gap
from qunlearn.runs.metrics import metrics_of
from qunlearn.store.run import Run
from qunlearn.store.typed import untyped

RESULTS = Path(__file__).parent / "results" / "study"


def row(path: Path, retrain: Run) -> dict[str, Any]:
    """A cell in few figures."""
    run = Run.open(path)
    metrics = metrics_of(run)
    figures = {score: round(value, 2) for score, value in metrics.figures.items()}
    return {
        "cell": f"{path.parent.parent.name}/{path.parent.name}/{path.name}",
        "revision": run.info.revision,
        "settings": run.config["settings"],
        **figures,
        "AG": round(average_gap(metrics.figures, metrics_of(retrain).figures), 2),
        "entropy": {name: round(part.entropy, 4) for name, part in metrics.parts.items()},
        "calibration": metrics.calibration and untyped(metrics.calibration),
        "relearned": metrics.relearning and round(metrics.relearning.accuracy, 2),
        "seconds": run.info.seconds["forgetting"],
        "compiled": bool(run.history and run.history[-1].compiled),
        "machine": vars(run.info.machine),
        "model_sha256": run.info.model_sha256,
    }


def attacks(home: Path) -> dict[str, Any]:
    """LiRA's findings by method, where there are Retrains enough to judge by."""
    tables = [json.loads(file.read_text()) for file in sorted(home.glob("*/table.json"))]
    rows = [row for table in tables for row in table["rows"]]
    return {r["method"]: {"seeds": r["seeds"], **r["lira"]} for r in rows if r.get("lira")}


def original(path: Path) -> dict[str, Any]:
    """The network that all cells of a study began with, in few figures."""
    run = Run.open(path)
    parts = {name: round(part.accuracy, 2) for name, part in metrics_of(run).parts.items()}
    # Not where things are on a machine; of a start, what it is called.
    settings = {key: value for key, value in run.config.items() if key != "data_dir"}
    if start := settings.get("start_from"):
        settings["start_from"] = "/".join(Path(start).parts[-2:])
    return {"accuracy": parts, "settings": settings, "model_sha256": run.info.model_sha256}


def save(file: Path, content: Any) -> None:
    """Write JSON, and say how much."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=1) + "\n")
    print(f"{file}: {len(content)} rows")


def main(out: Path) -> None:
    for path in filter(Run.is_complete, sorted(out.glob("*/original"))):
        save(RESULTS / path.parent.name / "original.json", original(path))
    for home in sorted(path.parent for path in out.glob("*/*/cells")):
        paths = sorted(p for kind in ("cells", "trials") for p in (home / kind).glob("*/*"))
        rows = []
        for path in filter(Run.is_complete, paths):
            # A cell is measured against the Retrain of its seed; trials are of seed 0.
            seed = path.name.split("-")[0] if path.name.startswith("seed") else "seed0"
            retrain = home / "cells" / "retrain" / seed
            if Run.is_complete(retrain):
                rows.append(row(path, Run.open(retrain)))
        for name, content in ((home.name, rows), (f"{home.name}-lira", attacks(home))):
            if content:
                save(RESULTS / home.parent.name / f"{name}.json", content)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
