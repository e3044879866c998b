"""Where `calibrated` stands, study by study: beside Retrain, chance, and the best other method.

    python benchmarks/standing.py     # from what collect.py has written

Retrains of other seeds show how far two networks that never saw the samples are apart. What is
above that counts: in AG as a share of what the best other method is above it, and in MIA and the
entropy of the answers, where more than Retrain's means that too much was forgotten. Of each other
method, and of the newest revision of `calibrated`, all seeds that were run count; of cells of one
seed, the best.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain, combinations
from pathlib import Path
from statistics import mean
from typing import Any

from qunlearn.metrics import average_gap

RESULTS = Path(__file__).parent / "results"
HEAD = (
    "study, share forgotten, revision of `calibrated` | AG between Retrains | `calibrated`'s AG "
    "| best other's AG | above Retrains': `calibrated` of best other | MIA above Retrain's "
    "| most between Retrains | entropy above Retrain's | most between Retrains"
)

Row = Mapping[str, Any]


def studies() -> list[Path]:
    """The files of all studies by name; the networks of those in the archive no longer exist."""
    files = (RESULTS / "study").glob("*/*.json"), (RESULTS / "archive/study").glob("*/*.json")
    return sorted(chain(*files), key=lambda file: (file.parent.name, file.name))


def revision(row: Row) -> int:
    """Of the code that made a cell; in the oldest of them only the calibration shows it."""
    calibration = row.get("calibration") or {}
    return int(row.get("revision", 2 if "sharpened" in calibration else 1))


def by_seed(rows: Sequence[Row]) -> dict[str, dict[int, Row]]:
    """The cells by method and seed; trials of a search are left out."""
    cells: dict[str, dict[int, Row]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: (revision(row), -row["AG"])):
        kind, method, seed = row["cell"].split("/")
        if kind == "cells":
            cells[method][int(seed.removeprefix("seed").partition("-")[0])] = row
    return cells


def standing(rows: Sequence[Row]) -> dict[str, Any]:
    """One study in few figures; needs `calibrated` and a Retrain."""
    methods = by_seed(rows)
    retrains, own = methods.pop("retrain"), methods.pop("calibrated")
    newest = max(revision(row) for row in own.values())
    own = {seed: row for seed, row in own.items() if revision(row) == newest}
    pairs = list(combinations(retrains.values(), 2))
    variants = {name for name in methods if name.startswith("calibrated")}
    others = {n: mean(r["AG"] for r in methods[n].values()) for n in methods.keys() - variants}

    def above(figure: str) -> tuple[list[float], float | None]:
        """`calibrated` above the Retrain of its seed, and the most that Retrains differ by."""
        value = (lambda r: r["entropy"]["forget"]) if figure == "entropy" else (lambda r: r[figure])
        most = max((abs(value(a) - value(b)) for a, b in pairs), default=None)
        return [value(row) - value(retrains[seed]) for seed, row in sorted(own.items())], most

    return {
        "revision": newest,
        "floor": mean(average_gap(a, b) for a, b in pairs) if pairs else None,
        "AG": [row["AG"] for _, row in sorted(own.items())],
        "others": sorted(others.items(), key=lambda other: other[1]),
        "MIA": above("MIA"),
        "entropy": above("entropy"),
    }


def line(name: str, figures: Mapping[str, Any]) -> str:
    """A study as a row of a table in Markdown."""
    floor, (best, gap) = figures["floor"], next(iter(figures["others"]), ("", None))
    ratio = ""
    if floor is not None and gap is not None:
        ratio = f"{max(mean(figures['AG']) - floor, 0):.2f} of {gap - floor:.2f}"
    cells = [
        f"{name}, {figures['revision']}",
        "" if floor is None else f"{floor:.2f}",
        ", ".join(f"{ag:.2f}" for ag in figures["AG"]),
        f"{best} {gap:.2f}" if gap is not None else "",
        ratio,
    ]
    for figure, digits in (("MIA", 1), ("entropy", 2)):
        own, most = figures[figure]
        cells += [
            ", ".join(f"{x:+.{digits}f}" for x in own),
            "" if most is None else f"{most:.{digits}f}",
        ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    print(f"| {HEAD} |\n|{'---|' * (HEAD.count(' | ') + 1)}")
    for file in studies():
        rows = json.loads(file.read_text())
        if isinstance(rows, list) and {"calibrated", "retrain"} <= by_seed(rows).keys():
            print(line(f"{file.parent.name}, {file.stem}", standing(rows)))


if __name__ == "__main__":
    main()
