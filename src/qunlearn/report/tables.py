"""The tables of a comparison, as rows of text that the command line prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from qunlearn.metrics.gap import SCORES
from qunlearn.metrics.gap import gaps as metric_gaps
from qunlearn.report.rows import interval, runtime
from qunlearn.study.paper import PaperRow
from qunlearn.study.table import Table

SCORE_NAMES = {
    "FA": "forgotten right (FA)",
    "RA": "retained right (RA)",
    "TA": "test right (TA)",
    "MIA": "taken for unseen (MIA)",
}
"""The four figures in words, with the field's letters for them."""

AVERAGE = "mean gap (AG)"

MARKS = {"best": " *", "runner-up": " +", None: ""}
"""What stands behind the AG of a method, by its place."""

MARKS_EXPLAINED = "In brackets: the gap. * best, + runner-up, where that can be told."


@dataclass(frozen=True)
class TextTable:
    """A table of text: a head, and rows as wide as it.

    Attributes:
        head: The columns' names.
        rows: The cells.
        title: What stands above it.
        left: How many columns are aligned to the left.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    left: int = 1


def comparison_table(
    table: Table, paper: Mapping[str, PaperRow] = MappingProxyType({}), title: str = ""
) -> TextTable:
    """The paper's table: each figure with its gap to Retrain; below ours, what the paper has."""
    rows = []
    for row in table.rows:
        place = table.ranking.place(row.method) if table.ranking else None
        ours = {s: interval(value) for s, value in row.figures.items()} | {"AG": interval(row.AG)}
        gaps = {score: gap for score, (gap, _) in row.gaps.items()}
        cells = _cells(row.method, ours, gaps, MARKS[place])
        rows.append([row.method, *cells, runtime(row), f"{row.trials}"])
        if row.method in paper:
            rows.append(["  the paper", *_paper_cells(row.method, paper), "", ""])
    rows += [[name, "failed", *[""] * 6] for name in table.failed]
    head = ["method", *SCORE_NAMES.values(), AVERAGE, "time, of Retrain's", "trials"]
    return TextTable(head, rows, title)


def _paper_cells(method: str, paper: Mapping[str, PaperRow]) -> list[str]:
    """The paper's figures of a method, with their gaps to the paper's Retrain."""
    row = paper[method]
    figures = {s: f"{value:.2f}" for s, value in row.figures.items()} | {"AG": f"{row.AG:.2f}"}
    return _cells(method, figures, metric_gaps(row.figures, paper["retrain"].figures))


def _cells(
    method: str, figures: Mapping[str, str], gaps: Mapping[str, float], mark: str = ""
) -> list[str]:
    """The four figures with their gaps, and AG; Retrain has no gap to itself."""
    if method == "retrain":
        return [*(figures[score] for score in SCORES), ""]
    return [*(f"{figures[s]} ({gaps[s]:.2f})" for s in SCORES), figures["AG"] + mark]


def lira_names(table: Table) -> list[str]:
    """The figures of LiRA that a comparison has; none if it has too few Retrains."""
    return next((list(row.lira) for row in table.rows if row.lira), [])


def predictions_table(table: Table) -> TextTable:
    """How alike the predictions on the forgotten samples are to Retrain's."""
    names = lira_names(table)
    relearned = any(row.relearned for row in table.rows)
    rows = []
    for row in table.rows:
        cells = [row.method, interval(row.entropy["forget"], 3)]
        compared = row.method != "retrain"
        cells += [f"{row.agreement['forget'][0]:.1f} %" if compared else ""]
        cells += [interval(row.divergence["forget"], 4) if compared else ""]
        cells += [interval(row.lira[name], 3) if row.lira else "" for name in names]
        if relearned:
            cells.append(interval(row.relearned) if row.relearned else "")
        rows.append(cells)
    head = ["on the forgotten samples", "entropy", "agreement", "divergence"]
    head += [f"LiRA {name}" for name in names] + (["right after fine-tuning"] if relearned else [])
    return TextTable(head, rows)
