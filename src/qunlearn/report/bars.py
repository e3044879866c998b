"""Bars: the gaps to Retrain one on the other, and the time that forgetting takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from qunlearn.metrics.gap import SCORES
from qunlearn.report.drawing import (
    FORGET,
    INK,
    KNOWN,
    LINE,
    ON_BAR,
    OTHERS,
    PAPER,
    SOFT,
    Drawn,
    draw,
)

COLOURS = dict(zip(SCORES, (FORGET, KNOWN, *OTHERS[:2]), strict=True))
WIDTH = 4.0
CLEAR = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.8}
"""What keeps lines from running through a number."""


def gap_bars(gaps: Mapping[str, Mapping[str, float]], floor: float | None = None) -> Drawn:
    """For each method the four gaps in a row, so that the length is their sum.

    Args:
        gaps: By method, then by figure.
        floor: The AG of Retrains among each other, whose place in the sum is marked.
    """
    order = sorted(gaps, key=lambda name: sum(gaps[name].values()))
    sums = [sum(gaps[name].values()) for name in order]
    longest = max(axis_end(sums), 4 * (floor or 0))

    def paint(figure: Any) -> None:
        axes = _rows(figure, order)
        for i, name in enumerate(order):
            start = 0.0
            for score in SCORES:
                value = gaps[name][score]
                axes.barh(i, value, 0.62, left=start, color=COLOURS[score], lw=0)
                if value > 0.07 * longest and start + value <= longest:
                    dark = score in ("TA", "MIA")
                    axes.text(
                        start + value / 2,
                        i,
                        f"{value:.1f}",
                        ha="center",
                        va="center",
                        fontsize=7.5,
                        color="#101418" if dark else ON_BAR,
                        bbox=CLEAR | {"facecolor": COLOURS[score]},
                    )
                start += value
            end = min(start, 1.02 * longest)
            cut = "▸ " if start > longest else ""
            axes.text(
                end + 0.015 * longest,
                i,
                f"{cut}{start:.1f}",
                va="center",
                weight="bold",
                bbox=CLEAR,
            )
        if floor is not None:
            axes.axvline(4 * floor, color=INK, lw=1, ls=(0, (4, 3)))
        if sums[-1] > longest:
            axes.axvspan(1.02 * longest, 2 * sums[-1], color=PAPER, lw=0, zorder=2)
        axes.set_xlim(0, 1.2 * longest)
        note = " (▸: longer)" if sums[-1] > longest else ""
        axes.set_xlabel(f"sum of the four gaps to Retrain, in points{note}")
        _key(axes, floor is not None)

    spelt = "; ".join(
        f"{name}: " + ", ".join(f"{s} {gaps[name][s]:.1f}" for s in SCORES) for name in order
    )
    size = (WIDTH, 0.95 + 0.3 * len(order))
    return draw("gaps", "Gaps to Retrain", f"Stacked bars of gaps in points. {spelt}.", size, paint)


def axis_end(values: Sequence[float]) -> float:
    """Where the axis ends: at the longest bar, unless it would make dwarfs of most others.

    >>> axis_end([10, 12, 15]), axis_end([10, 12, 300])
    (15, 36)
    """
    return min(max(values), 3 * median(values)) or 1.0


def runtime_bars(shares: Mapping[str, float]) -> Drawn:
    """For each method its time as a share of Retrain's, in percent."""
    order = sorted(shares, key=lambda name: shares[name])
    longest = max([*shares.values(), 100.0])

    def paint(figure: Any) -> None:
        axes = _rows(figure, order)
        for i, name in enumerate(order):
            axes.barh(i, shares[name], 0.62, color=KNOWN, lw=0)
            axes.text(
                shares[name] + 0.015 * longest, i, f"{shares[name]:.1f} %", va="center", bbox=CLEAR
            )
        axes.axvline(100, color=INK, lw=1, ls=(0, (4, 3)))
        axes.text(100, -0.72, "Retrain", ha="center", va="bottom", fontsize=7.5, color=SOFT)
        axes.set_xlim(0, 1.16 * longest)
        axes.set_xlabel("time, in percent of Retrain's")

    spelt = ", ".join(f"{name} {shares[name]:.1f} %" for name in order)
    size = (WIDTH, 0.8 + 0.3 * len(order))
    alt = f"Bars of the time as a share of Retrain's: {spelt}."
    return draw("runtime", "Time to forget", alt, size, paint)


def _rows(figure: Any, names: list[str]) -> Any:
    """Axes with a row for each name, the first on top."""
    axes = figure.add_subplot()
    axes.set_ylim(len(names) - 0.4, -0.6)
    # A variant's settings go below the method's name, and small: they can be long.
    axes.set_yticks(range(len(names)), [name.replace("[", "\n[", 1) for name in names])
    size = 6.5 if any("[" in name for name in names) else 8.5
    axes.tick_params(axis="y", labelcolor=INK, labelsize=size)
    axes.grid(axis="x", color=LINE)
    axes.spines["left"].set_visible(False)
    return axes


def _key(axes: Any, floor: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    names = {"FA": "forgotten", "RA": "retained", "TA": "test", "MIA": "attack"}
    entries: list[Any] = [
        Patch(color=COLOURS[score], lw=0, label=f"{score} ({names[score]})") for score in SCORES
    ]
    if floor:
        entries.append(Line2D([], [], color=INK, lw=1, ls=(0, (4, 3)), label="noise floor"))
    axes.legend(
        handles=entries,
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=3,
        fontsize=7.5,
        handlelength=1.2,
        columnspacing=1.2,
        borderpad=0.1,
    )
