"""The tables of `docs/reference/results/audits.md`, from what is in `results/`.

    python benchmarks/audit_tables.py

Prints Markdown: for each comparison that `audits.py` has audited the verdicts, the figures and what
each audit costs; how the retrain-free divergence goes with AG over all cells; the null runs of
`null_audits.py`; and the pools of `pool.py`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from scipy.stats import pearsonr, spearmanr

from qunlearn.metrics.bootstrap import bootstrap_interval
from qunlearn.store.files import read_json

RESULTS = Path(__file__).parent / "results"
FIGURES = {
    "relearn, 0 shown (points)": ("relearn", "confidence that comes back, 0 per class shown"),
    "1 shown": ("relearn", "confidence that comes back, 1 per class shown"),
    "10 shown": ("relearn", "confidence that comes back, 10 per class shown"),
    "differ: AUC by log-odds against unseen": ("differ", "AUC by log-odds, against unseen"),
    "by output distance": ("differ", "AUC by output distance, against unseen"),
}
"""What is shown of each audit, beside its verdict."""
AUDITS = ("relearn", "differ", "bits")

Cell = Mapping[str, Any]


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def verdicts(cells: Sequence[Cell], name: str) -> str:
    """How often each verdict, over the seeds.

    >>> verdicts([{"audits": {"bits": {"verdict": "pass"}}}] * 2, "bits")
    'pass 2'
    """
    given = [cell["audits"][name]["verdict"] for cell in cells if name in cell["audits"]]
    return ", ".join(f"{each} {given.count(each)}" for each in dict.fromkeys(sorted(given)))


def figure(cells: Sequence[Cell], audit: str, name: str) -> str:
    """A figure's mean over the seeds, and from the lowest to the highest end of its intervals."""
    audited = [cell["audits"].get(audit, {"figures": []}) for cell in cells]
    found = [each for row in audited for each in row["figures"] if each["name"] == name]
    if not found:
        return ""
    digits = 1 if found[0].get("unit") else 3
    low = min(each["interval"]["low"] for each in found)
    high = max(each["interval"]["high"] for each in found)
    value, retrains = mean(each["value"] for each in found), [each.get("retrain") for each in found]
    beside = "" if None in retrains else f"; Retrain {mean(retrains):.{digits}f}"
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f}{beside})"


def average(values: Iterable[float | None], digits: int) -> str:
    """The mean of what is known.

    >>> average([1.0, None, 2.0], 1), average([None], 1)
    ('1.5', '')
    """
    known = [value for value in values if value is not None]
    return f"{mean(known):.{digits}f}" if known else ""


def shares(cells: Sequence[Cell], name: str) -> str:
    """An audit's time as a share of Retrain's, the median over the seeds."""
    known = [cell["audits"].get(name, {}).get("share") for cell in cells]
    known = [share for share in known if share is not None]
    return f"{median(known):.0f} %" if known else ""


def study(folder: Path) -> str:
    """The tables of one comparison."""
    methods = [read_json(file) for file in sorted(folder.glob("*.json"))]
    methods = sorted((each for each in methods if "cells" in each), key=_order)
    rows = [
        [
            *(each["method"], str(len(each["cells"]))),
            *(verdicts(each["cells"], name) for name in AUDITS),
            average((cell["AG"] for cell in each["cells"]), 2),
            average((divergence(cell) for cell in each["cells"]), 4),
        ]
        for each in methods
    ]
    parts = [f"## {folder.name}\n"]
    parts.append(markdown(["method", "seeds", *AUDITS, "AG", "RF-JSD"], rows))
    rows = [
        [each["method"], *(figure(each["cells"], *place) for place in FIGURES.values())]
        for each in methods
    ]
    parts.append(markdown(["method", *FIGURES], rows))
    cells = [cell for each in methods for cell in each["cells"]]
    costs = [[name, shares(cells, name)] for name in AUDITS]
    request = folder / "request.json"
    if request.is_file():
        copies = read_json(request)["copies"]
        shown = "; ".join(f"{f['value']:.0f} {f['name']}" for f in copies["figures"])
        parts.append(f"`copies`, of the request: {copies['verdict']}. {shown}.\n")
        costs.append(["copies", f"{copies['share']:.0f} %" if copies.get("share") else ""])
    parts.append(markdown(["audit", "time, of Retrain's"], costs))
    return "\n".join(parts)


def _order(content: Mapping[str, Any]) -> tuple[int, str]:
    first = ("original", "retrain")
    method = str(content["method"])
    return (first.index(method) if method in first else len(first), method)


def divergence(cell: Cell) -> float | None:
    """The retrain-free divergence of a cell."""
    value = cell["audits"].get("differ", {}).get("divergence")
    return None if value is None else float(value)


def correlation(cells: Sequence[Cell]) -> str:
    """How the retrain-free divergence goes with AG."""
    pairs = [(divergence(cell), cell["AG"]) for cell in cells]
    known = torch.tensor([pair for pair in pairs if None not in pair], dtype=torch.float64)
    if len(known) < 4:
        return f"{len(known)} cells are too few for a correlation.\n"

    def rank(rows: torch.Tensor) -> float:
        if float(rows.std(0).min()) == 0:  # a resample of one cell alone
            return 0.0
        return float(spearmanr(rows[:, 0], rows[:, 1]).statistic)

    ends = bootstrap_interval(rank, known)
    linear = float(pearsonr(known[:, 0], known[:, 1]).statistic)
    return (
        f"RF-JSD and AG over {len(known)} cells: rank correlation {rank(known):.2f} (95 % "
        f"{ends.low:.2f} to {ends.high:.2f}), linear {linear:.2f}.\n"
    )


def null_runs(content: Mapping[str, Any]) -> str:
    """How often each audit failed a network that it should not fail, and one that it should."""
    head = ["network", "runs", *content["audits"]]
    rows = [
        [name, str(each["runs"]), *(f"{each['failed'][a]} fail" for a in content["audits"])]
        for name, each in content["networks"].items()
    ]
    return f"At most {content['most']} of {content['null_runs']} at a level of 5 %.\n\n" + markdown(
        head, rows
    )


def pools(rows: Sequence[Mapping[str, Any]]) -> str:
    """Each method beside a pool of networks."""
    names = list(
        dict.fromkeys(f"{f['attack']}, {f['samples']}" for r in rows for f in r["figures"])
    )
    lines = []
    for row in rows:
        figures = {f"{f['attack']}, {f['samples']}": f for f in row["figures"]}
        shown = [_pooled(figures.get(name)) for name in names]
        lines.append([row["method"], str(row["models"]), *shown, f"{row['seconds_each']:.0f} s"])
    return markdown(["method", "networks", *names, "each took"], lines)


def _pooled(figure: Mapping[str, Any] | None) -> str:
    if figure is None or figure.get("value") is None:
        return ""
    ends = figure["interval"]
    return f"{figure['verdict']}: {figure['value']:.3f} ({ends['low']:.3f} to {ends['high']:.3f})"


def main() -> None:
    """Print what there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    home = parser.parse_args().results
    cells = []
    for folder in sorted(path for path in (home / "audits").glob("*") if path.is_dir()):
        print(study(folder))
        methods = [read_json(file) for file in folder.glob("*.json")]
        mine = [(each["method"], cell) for each in methods for cell in each.get("cells", ())]
        cells += mine
        print("Here: " + correlation([cell for _, cell in mine]))
    print("## The retrain-free divergence\n")
    print("All cells: " + correlation([cell for _, cell in cells]))
    kept = [cell for method, cell in cells if method != "original"]
    print("Without the original: " + correlation(kept))
    if (home / "audits" / "null.json").is_file():
        print("## Known answers\n\n" + null_runs(read_json(home / "audits" / "null.json")))
    for file in sorted((home / "pool").glob("*.jsonl")):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        print(f"## Pool {file.stem}\n\n" + pools(rows))


if __name__ == "__main__":
    main()
