"""The rows of a comparison's table: means over seeds, gaps to Retrain, LiRA, the noise floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
from qunlearn.runs.metrics import RunMetrics
from qunlearn.study.table import CellResult, Interval, NoiseFloor, TableRow

FEWEST = 100
"""With fewer samples, 1 % of them is less than one."""

ZERO: Interval = (0.0, None)


def rows_of(
    results: Mapping[str, Sequence[CellResult]],
    outputs: Mapping[str, Sequence[Mapping[str, Tensor]]],
    trials: Mapping[str, int],
    split: Split,
) -> tuple[TableRow, ...]:
    """The rows of the table, Retrain first.

    Args:
        results: The results of each method, seed by seed.
        outputs: The models' outputs on every part, in the same order.
        trials: How many settings were tried, by method.
        split: What was to be forgotten.
    """
    return tuple(
        _row(name, cells, results["retrain"], trials.get(name, 0), lira_of(name, outputs, split))
        for name, cells in results.items()
    )


def _row(
    name: str,
    cells: Sequence[CellResult],
    retrains: Sequence[CellResult],
    trials: int,
    attacked: Mapping[str, Interval],
) -> TableRow:
    metrics = [cell.metrics for cell in cells]
    parts = metrics[0].parts
    compared = name != "retrain"
    gaps = {s: _mean([m.gaps[s] for m in metrics]) if compared else ZERO for s in SCORES}
    times = zip(cells, (retrains[cell.seed] for cell in cells), strict=True)
    shares = [runtime_share(cell.seconds, retrain.seconds) for cell, retrain in times]

    def by_part(key: str) -> dict[str, Interval]:
        return {part: _mean([getattr(m.parts[part], key) for m in metrics]) for part in parts}

    return TableRow(
        method=name,
        seeds=len(cells),
        trials=trials,
        settings=cells[0].settings,
        **{s: _mean([m.figures[s] for m in metrics]) for s in SCORES},
        AG=_mean([m.AG for m in metrics]) if compared else ZERO,
        gaps=gaps,
        seconds=_mean([cell.seconds for cell in cells]),
        runtime=_mean(shares),
        evenly_timed=len({(cell.threads, cell.workers) for cell in (*cells, *retrains)}) == 1,
        entropy=by_part("entropy"),
        cells=tuple(cells),
        agreement=by_part("agreement") if compared else {},
        divergence=by_part("divergence") if compared else {},
        lira=attacked,
        relearned=_relearned(metrics),
    )


def _relearned(metrics: Sequence[RunMetrics]) -> Interval | None:
    accuracies = [m.relearning.accuracy for m in metrics if m.relearning is not None]
    return _mean(accuracies) if len(accuracies) == len(metrics) else None


def noise_floor(retrains: Sequence[CellResult]) -> NoiseFloor | None:
    """How far apart Retrains are; None with a single one."""
    gaps = [
        average_gap(a.metrics.figures, b.metrics.figures)
        for i, a in enumerate(retrains)
        for b in retrains[i + 1 :]
    ]
    return NoiseFloor((sum(gaps) / len(gaps), None), len(gaps)) if gaps else None


def lira_of(
    name: str, outputs: Mapping[str, Sequence[Mapping[str, Tensor]]], split: Split
) -> dict[str, Interval]:
    """Per-sample LiRA: each cell judged by the other seeds' Retrains, against its own seed's.

    Nothing with fewer than three Retrains.
    """
    if name == "retrain" or len(outputs["retrain"]) < 3:
        return {}
    labels = split.data.labels[split.forget]
    confidence = [margin(each["forget"], labels) for each in outputs["retrain"]]
    areas, rates, distances = [], [], []
    for seed, outputs_of_seed in enumerate(outputs[name]):
        others = torch.stack([c for other, c in enumerate(confidence) if other != seed])
        null = lira(confidence[seed], others)
        scores = lira(margin(outputs_of_seed["forget"], labels), others)
        areas.append(auc(scores, null))
        rates.append(100 * tpr_at_fpr(scores, null))
        distances.append(auc(scores.abs(), null.abs()))
    figures = {"AUC": _mean(areas), "AUC of |z|": _mean(distances)}
    if len(labels) >= FEWEST:
        figures["TPR at 1 % FPR"] = _mean(rates)
    return figures


def _mean(values: Sequence[float]) -> Interval:
    mean, half = mean_interval(values)
    return mean, half if len(values) > 1 else None
