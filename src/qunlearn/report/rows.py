"""The table of a comparison, as the page shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from qunlearn.metrics.gap import SCORES
from qunlearn.report.html import Safe, join, table, tag
from qunlearn.report.sections import MEANING, counted


def comparison_table(content: Mapping[str, Any]) -> Safe:
    """Each figure with its interval and its gap; notes on how it came about."""
    rows = content["rows"]
    before, floor = content["original"], content["noise_floor"]
    head = ["method", "AG", *SCORES, "runtime", "trials"]
    lines = [_padded(["before forgetting", "", *(f"{before[s]:.2f}" for s in SCORES)], len(head))]
    lines += [_line(row) for row in rows]
    classes = ["aside", *("best" if row.get("place") == "best" else "" for row in rows)]
    if floor:
        name = join("noise floor", tag("small", "Retrains among each other"))
        lines.append(_padded([name, interval(floor["AG"])], len(head)))
        classes.append("aside")
    return join(
        table(head, lines, "The comparison", classes),
        *(tag("p", note, class_="note") for note in notes(content)),
        _lira(rows),
    )


def _line(row: Mapping[str, Any]) -> list[object]:
    retrain, place = row["method"] == "retrain", row.get("place")
    cells: list[object] = [join(row["method"], tag("small", place)) if place else row["method"]]
    cells.append("" if retrain else interval(row["AG"]))
    for score in SCORES:
        gap = "sets the mark" if retrain else f"gap {interval(row['gaps'][score])}"
        cells.append(join(interval(row[score]), tag("small", gap)))
    return [*cells, f"{interval(row['runtime'], 1)} %", "" if retrain else row["trials"]]


def _lira(rows: Sequence[Mapping[str, Any]]) -> Safe:
    """What the attack on each sample finds, where there were enough Retrains for it."""
    lines = [
        (
            row["method"],
            interval(row["lira"]["AUC"], 3),
            f"{interval(row['lira']['TPR at 1 % FPR'])} %",
        )
        for row in rows
        if "lira" in row
    ]
    if not lines:
        return Safe("")
    return join(
        tag("h3", "LiRA: an attack on each sample"),
        tag(
            "p",
            "Each forgotten sample is judged by the Retrains of the other seeds. An AUC of 0.5 and "
            "a TPR of 1 % mean that forgotten samples cannot be told from unseen ones; the higher, "
            "the more of them can.",
            class_="note",
        ),
        table(("method", "AUC", "TPR at 1 % FPR"), lines, "LiRA"),
    )


def _padded(cells: Sequence[object], width: int) -> list[object]:
    return [*cells, *[""] * (width - len(cells))]


def notes(content: Mapping[str, Any]) -> list[str]:
    """What a reader has to know to trust the table, or not to."""
    rows = content["rows"]
    seeds = content["seeds"]
    found = [MEANING]
    spread = "mean ± half the 95 % interval over the seeds" if seeds > 1 else "no interval"
    found.append(
        f"{counted(seeds, 'seed')}: {spread}. Gap: the distance to Retrain of the same seed; AG: "
        "the mean of the four gaps, where small is good. Runtime: of Retrain's. Trials: how many "
        "settings were tried."
    )
    if not content["noise_floor"]:
        found.append(
            "With a single seed there is no noise floor: how far Retrain is from itself by chance "
            "is not known."
        )
    if len({row["trials"] for row in rows if row["method"] != "retrain"}) > 1:
        found.append(
            "Careful: the methods had different numbers of trials, so this comparison is not even."
        )
    if content["select"] == "oracle":
        found.append(
            "Settings were chosen on seed 0 by looking at Retrain (oracle), which nobody has in "
            "practice: take the figures as the best each method can do."
        )
    elif content["select"]:
        found.append(
            "Settings were chosen on seed 0 by looking at held-out data only, not at Retrain."
        )
    else:
        found.append("Settings were not searched for: they are the given ones and the defaults.")
    return found


def interval(value: Sequence[float | None], digits: int = 2) -> str:
    """A mean with half its interval.

    >>> interval([12.5, 0.25]), interval([3.0, None])
    ('12.50 ± 0.25', '3.00')
    """
    mean, half = value
    return f"{mean:.{digits}f}" + (f" ± {half:.{digits}f}" if half is not None else "")
