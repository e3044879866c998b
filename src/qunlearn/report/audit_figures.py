"""What audits showed, as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from qunlearn.audit import Finding
from qunlearn.audit.differ import DifferAudit
from qunlearn.audit.relearn import RelearnAudit, Relearned
from qunlearn.report.drawing import FORGET, INK, KNOWN, SOFT, Drawn, draw

LEAST_RANGE, MARGIN = 30.0, 2.0
"""Points that an axis of confidences shows at least, and beyond the curves."""


@singledispatch
def picture(finding: Finding) -> Drawn | None:
    """What an audit found as a figure; None if it has none. Each kind of finding registers one."""
    return None


@picture.register
def relearn_picture(finding: RelearnAudit) -> Drawn | None:
    """Confidence against steps: a panel for each number of forgotten samples shown."""
    curves = finding.curves

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
        for axes, curve in zip(panels, curves, strict=True):
            steps = [point.steps for point in curve.points]
            unseen = [point.unseen_confidence for point in curve.points]
            axes.plot(steps, unseen, color=KNOWN, ls="--", lw=1.3, label="unseen")
            if curve.retrain:
                theirs = [point.confidence for point in curve.retrain]
                axes.plot(steps, theirs, color=INK, ls=":", lw=1.5, label="Retrain, forgotten")
            ours = [point.confidence for point in curve.points]
            axes.plot(steps, ours, color=FORGET, marker="D", ms=2.5, lw=1.5, label="forgotten")
            axes.set_title(f"{curve.shown} per class shown", fontsize=8.5, color=INK)
            axes.set_xlabel("steps of fine-tuning")
            axes.grid(axis="y")
        panels[0].set_ylim(*_range(curves))
        panels[0].set_ylabel("confidence in the true label, %")
        panels[0].legend(fontsize=7, loc="best")

    ends = "; ".join(
        f"with {c.shown} per class shown {c.points[0].confidence:.0f} % to "
        f"{c.points[-1].confidence:.0f} %"
        for c in curves
    )
    alt = f"Mean confidence on the forgotten samples against steps of fine-tuning: {ends}."
    size = (2.4 * len(curves) + 0.6, 2.3)
    return draw("audit-relearn", "Relearning", alt, size, paint)


def _range(curves: Sequence[Relearned]) -> tuple[float, float]:
    """The ends of the axis, so far apart that differences by chance look small."""
    points = [point for curve in curves for point in (*curve.points, *curve.retrain)]
    values = [value for p in points for value in (p.confidence, p.unseen_confidence)]
    low, high = min(values) - MARGIN, max(values) + MARGIN
    return min(low, max(high - LEAST_RANGE, -MARGIN)), high


@picture.register
def differ_picture(finding: DifferAudit) -> Drawn | None:
    """The AUC of each score with its interval, beside Retrain's."""
    rows = finding.separations
    names = [f"{each.score}, {each.against}" for each in rows]

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        for i, each in enumerate(rows):
            ends = [[each.auc - each.interval.low], [each.interval.high - each.auc]]
            axes.errorbar(
                each.auc, i, xerr=ends, fmt="D", color=FORGET, ms=4, lw=1.2, label="after"
            )
            if each.retrain is not None:
                axes.plot(each.retrain, i, "o", mfc="none", color=INK, ms=6, label="Retrain")
        axes.axvline(0.5, color=SOFT, lw=1, ls=(0, (4, 3)))
        axes.set_yticks(range(len(rows)), names)
        axes.tick_params(axis="y", labelcolor=INK)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel("AUC, forgotten against others; dashed: chance")
        axes.grid(axis="x")
        entries = dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
        axes.legend(entries.values(), entries.keys(), fontsize=7, loc="best")

    spoken = "; ".join(f"{name} {each.auc:.2f}" for name, each in zip(names, rows, strict=True))
    alt = f"AUC of the difference of the networks before and after: {spoken}."
    return draw("audit-differ", "Before against after", alt, (4.6, 0.8 + 0.28 * len(rows)), paint)
