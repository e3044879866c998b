"""A comparison's table: means and intervals over seeds, gaps to Retrain, the noise floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from qunlearn.data import Split
from qunlearn.metrics import (
    auc,
    average_gap,
    lira,
    margin,
    mean_interval,
    runtime_share,
    tpr_at_fpr,
)
from qunlearn.metrics.gap import SCORES
from qunlearn.study.ranking import ranking


@dataclass(frozen=True)
class Entry:
    """One finished cell."""

    method: str
    seed: int
    figures: Mapping[str, Any]
    predictions: Mapping[str, Tensor]
    trials: int


def table_of(entries: Sequence[Entry], split: Split) -> dict[str, Any]:
    """The rows of the table, Retrain first, and the noise floor.

    Each figure is given as `[mean, half the 95 % interval]`; the interval of one seed is None.
    """
    retrains = [entry for entry in entries if entry.method == "retrain"]
    names = list(dict.fromkeys(entry.method for entry in entries))
    rows = []
    for name in names:
        own = [entry for entry in entries if entry.method == name]
        rows.append(_row(name, own, retrains, split))
    floor = noise_floor(retrains)
    return {
        "rows": rows,
        "noise_floor": floor,
        "ranking": ranking(rows[1:], floor["AG"][0] if floor else 0.0),
    }


def _row(
    name: str, own: Sequence[Entry], retrains: Sequence[Entry], split: Split
) -> dict[str, Any]:
    metrics = [entry.figures["metrics"] for entry in own]
    references = {entry.seed: entry for entry in retrains}
    row: dict[str, Any] = {
        "method": name,
        "seeds": len(own),
        "trials": own[0].trials,
        "settings": own[0].figures["settings"],
    }
    row |= {score: _mean([m[score] for m in metrics]) for score in SCORES}
    shares = [
        runtime_share(entry.figures["seconds"], references[entry.seed].figures["seconds"])
        for entry in own
    ]
    row |= {"seconds": _mean([e.figures["seconds"] for e in own]), "runtime": _mean(shares)}
    ways = {(e.figures["threads"], e.figures["workers"]) for e in (*own, *retrains)}
    row["evenly_timed"] = len(ways) == 1
    row["entropy"] = {
        part: _mean([m["parts"][part]["entropy"] for m in metrics])
        for part in metrics[0].get("parts", {})
    }
    row["cells"] = [dict(entry.figures) | {"seed": entry.seed} for entry in own]
    if name != "retrain":
        gaps = {score: _mean([m["gaps"][score] for m in metrics]) for score in SCORES}
        row |= {"gaps": gaps, "AG": _mean([m["AG"] for m in metrics])}
        for key in ("agreement", "divergence"):
            parts = metrics[0]["parts"]
            row[key] = {part: _mean([m["parts"][part][key] for m in metrics]) for part in parts}
    else:
        row |= {"gaps": {score: [0.0, None] for score in SCORES}, "AG": [0.0, None]}
    if len(retrains) >= 3 and name != "retrain":
        row["lira"] = lira_of(own, retrains, split)
    return row


def noise_floor(retrains: Sequence[Entry]) -> dict[str, Any] | None:
    """The average gap between Retrains that differ in their seed alone; None with a single one.

    Without an interval: the pairs share their Retrains.
    """
    gaps = [
        average_gap(a.figures["metrics"], b.figures["metrics"])
        for i, a in enumerate(retrains)
        for b in retrains[i + 1 :]
    ]
    return {"AG": [sum(gaps) / len(gaps), None], "pairs": len(gaps)} if gaps else None


def lira_of(own: Sequence[Entry], retrains: Sequence[Entry], split: Split) -> dict[str, Any]:
    """Per-sample LiRA: each cell judged by the other seeds' Retrains, against its own seed's."""
    labels = split.data.labels[split.forget]
    confidence = {r.seed: margin(r.predictions["forget"], labels) for r in retrains}
    areas, rates, distances = [], [], []
    for entry in own:
        others = torch.stack([c for seed, c in confidence.items() if seed != entry.seed])
        null = lira(confidence[entry.seed], others)
        scores = lira(margin(entry.predictions["forget"], labels), others)
        areas.append(auc(scores, null))
        rates.append(100 * tpr_at_fpr(scores, null))
        distances.append(auc(scores.abs(), null.abs()))
    found = {"AUC": _mean(areas), "AUC of |z|": _mean(distances)}
    if len(labels) >= FEWEST:
        found["TPR at 1 % FPR"] = _mean(rates)
    return found


FEWEST = 100
"""With fewer samples, 1 % of them is less than one."""


def _mean(values: Sequence[float]) -> list[float | None]:
    mean, half = mean_interval(values)
    return [mean, half if len(values) > 1 else None]
