"""What a comparison's table holds, and how its file is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.metrics import Scores
from qunlearn.metrics.gap import SCORES
from qunlearn.runs.metrics import RunMetrics, modernise
from qunlearn.store.typed import Json, typed, untyped
from qunlearn.study.ranking import Ranking, ranking

Interval = tuple[float, float | None]
"""A mean over seeds, and half its 95 % interval; the interval of one seed is None."""

Detail = int | float | str | tuple[str | int, ...] | Mapping[str, int]
"""What a request asked, under one name."""

NEEDED_PARTS = {"forget", "retain", "test"}
"""What FA, RA, TA and MIA are measured on."""


@dataclass(frozen=True)
class CellResult:
    """What a finished cell came to.

    Attributes:
        seed: Its seed.
        folder: What its folder is called.
        metrics: What was measured, with the Retrain of the same seed as reference.
        seconds: How long forgetting took.
        settings: The method's settings.
        threads: How many threads it had.
        workers: How many cells were made at a time.
    """

    seed: int
    folder: str
    metrics: RunMetrics
    seconds: float
    settings: Mapping[str, object]
    threads: int
    workers: int = 1


@dataclass(frozen=True)
class TableRow:
    """A method, over all seeds.

    Attributes:
        method: Its name.
        seeds: How many seeds it was run with.
        trials: How many settings were tried.
        settings: Those of the first seed.
        FA: Accuracy on the forgotten samples.
        RA: Accuracy on the retained samples.
        TA: Accuracy on the test samples.
        MIA: The share of forgotten samples that an attack takes for unseen.
        AG: The mean of the four gaps; 0 for Retrain.
        gaps: The distance of each of the four figures to the Retrain of the same seed.
        seconds: How long forgetting took.
        runtime: The same, in percent of Retrain's time.
        evenly_timed: Whether it had the same threads and workers as the Retrains.
        entropy: By part.
        cells: The results, seed by seed.
        agreement: With Retrain's predictions, in percent, by part; empty for Retrain.
        divergence: From Retrain's probabilities, by part; empty for Retrain.
        lira: What the attack on each sample finds, where there are three Retrains or more.
        relearned: FA after the relearning probe's fine-tuning on retained samples; None if a cell
            was made without the probe.
    """

    method: str
    seeds: int
    trials: int
    settings: Mapping[str, object]
    FA: Interval
    RA: Interval
    TA: Interval
    MIA: Interval
    AG: Interval
    gaps: Mapping[str, Interval]
    seconds: Interval
    runtime: Interval
    evenly_timed: bool
    entropy: Mapping[str, Interval]
    cells: tuple[CellResult, ...]
    agreement: Mapping[str, Interval] = field(default_factory=dict)
    divergence: Mapping[str, Interval] = field(default_factory=dict)
    lira: Mapping[str, Interval] = field(default_factory=dict)
    relearned: Interval | None = None

    @property
    def figures(self) -> dict[str, Interval]:
        """FA, RA, TA and MIA, by name."""
        return {name: getattr(self, name) for name in SCORES}


@dataclass(frozen=True)
class NoiseFloor:
    """The average gap between Retrains that differ in their seed alone.

    Without an interval: the pairs share their Retrains.
    """

    AG: Interval
    pairs: int


@dataclass(frozen=True)
class Table:
    """A comparison.

    Attributes:
        request: The kind of the request.
        detail: What it asked.
        parts: How many samples each part has.
        seeds: How many seeds there are.
        original: The scores of the network before forgetting.
        failed: Methods that failed, and why.
        rows: Retrain, then every method.
        noise_floor: How far apart Retrains are; None with a single one.
        ranking: Which method is best, as far as the seeds can tell; None with a single method.
        select: What a search of settings looked at; None if there was none.
        settings_from: The table that settings come from.
        retired: How many samples the request retired.
    """

    request: str
    detail: Mapping[str, Detail]
    parts: Mapping[str, int]
    seeds: int
    original: Scores
    failed: Mapping[str, str]
    rows: tuple[TableRow, ...]
    noise_floor: NoiseFloor | None = None
    ranking: Ranking | None = None
    select: str | None = None
    settings_from: str | None = None
    retired: int = 0

    @property
    def retrain(self) -> TableRow:
        """The row that the others are compared with."""
        return self.rows[0]

    @property
    def methods(self) -> tuple[TableRow, ...]:
        """The other rows."""
        return self.rows[1:]

    def to_json(self) -> Json:
        """As it stands in `table.json`, with the figures that follow from the rest."""
        written = untyped(self)
        written["original"] = self.original.to_json()
        for row, content in zip(self.rows, written["rows"], strict=True):
            for cell, cell_content in zip(row.cells, content["cells"], strict=True):
                cell_content["metrics"] = cell.metrics.to_json()
        return written


def read_table(content: object, path: Path) -> Table:
    """A table from what its file holds; also as earlier versions wrote it."""
    if isinstance(content, dict):
        rows = content.get("rows")
        for row in rows if isinstance(rows, list) else ():
            cells = row.get("cells") if isinstance(row, dict) else None
            for cell in cells if isinstance(cells, list) else ():
                modernise(cell.get("metrics") if isinstance(cell, dict) else None)
        modernise(content.get("original"))
        if isinstance(content.get("ranking"), str):
            del content["ranking"]  # a sentence once; it follows from the rows
    table = typed(Table, content, path)
    if lacks := _lacks(table):
        raise UserError(
            f"The content of {str(path)!r} is invalid ({lacks}); repeat the same `qunlearn "
            "compare` to rebuild it from its cells."
        )
    return replace(table, ranking=ranking(table.methods, table.noise_floor))


def _lacks(table: Table) -> str:
    """What a table lacks that every comparison has."""
    if not table.rows or table.retrain.method != "retrain" or not table.methods:
        return "Retrain and a method are needed"
    if not {"forget", "retain"} <= table.parts.keys():
        return "parts: forget and retain are needed"
    for row in table.rows:
        by_part = [row.entropy] + ([row.agreement, row.divergence] if row in table.methods else [])
        if not row.cells or not all(table.parts.keys() <= each.keys() for each in by_part):
            return f"{row.method}: a cell or a part is missing"
        if row.gaps.keys() != set(SCORES):
            return f"{row.method}: a gap is missing"
    scores = [table.original, *(cell.metrics for row in table.rows for cell in row.cells)]
    if not all(each.complete and each.parts.keys() >= NEEDED_PARTS for each in scores):
        return "FA, RA, TA or MIA is missing"
    return ""
