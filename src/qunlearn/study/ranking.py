"""Which method is best, as far as the seeds can tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def ranking(rows: Sequence[dict[str, Any]], floor: float) -> str:
    """Mark the rows that are best and runner-up, if that can be told; what can be, in words."""
    ranked = sorted(rows, key=lambda row: row["AG"][0])
    if len(ranked) < 2:
        return ""
    best, second, *others = ranked
    if best["AG"][1] is None:
        return f"{best['method']} has the smallest AG, but one seed cannot tell which is best."
    if equals := _not_apart(best, ranked[1:], floor):
        return f"{best['method']} has the smallest AG, but which is best cannot be told: {equals}."
    best["place"] = "best"
    if equals := _not_apart(second, others, floor):
        return f"Best is {best['method']}; which comes second cannot be told: {equals}."
    second["place"] = "runner-up"
    return f"Best is {best['method']}, runner-up {second['method']}."


def _not_apart(row: Mapping[str, Any], others: Sequence[Mapping[str, Any]], floor: float) -> str:
    """Why some of the rows that come after cannot be told apart from a row; empty if all can."""
    mean, half = row["AG"]
    near = [other["method"] for other in others if other["AG"][0] <= floor]
    if near:
        return f"{', '.join([row['method'], *near])} are within the noise floor"
    near = [other["method"] for other in others if other["AG"][0] - other["AG"][1] <= mean + half]
    return f"its interval meets that of {', '.join(near)}" if near else ""
