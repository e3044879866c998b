"""The paper's figures, as it prints or states them, with what contradicts itself noted."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from qunlearn.metrics.gap import SCORES
from qunlearn.store.typed import typed

NAMES = {
    "Retrain": "retrain",
    "FT": "ft",
    "GA": "ga",
    "IU": "iu",
    "RL": "rl",
    "l1-sparse": "l1-sparse",
    "SalUn": "salun",
    "Q-MUL": "qmul",
    "OEU": "oeu",
    "w/o GOP": "oeu[alpha=0]",
    "w/o EGU": "oeu[forget_loss=random-label]",
    "GOP-global": "oeu[granularity=global]",
    "entropy alone": "oeu[alpha=0;beta=0]",
}
"""What the paper calls a method, and what we do."""


@dataclass(frozen=True)
class PaperRow:
    """A row of the paper's tables; `note` says what contradicts itself in it."""

    table: str
    dataset: str
    model: str
    scenario: str
    method: str
    FA: float
    RA: float
    TA: float
    MIA: float
    AG: float
    note: str

    @property
    def figures(self) -> dict[str, float]:
        """FA, RA, TA and MIA, by name."""
        return {name: getattr(self, name) for name in SCORES}


@dataclass(frozen=True)
class Stated:
    """What the paper's text says of a figure that has no numbers."""

    experiment: str
    dataset: str
    quantizer: str
    method: str
    figure: str
    value: float
    note: str


@cache
def paper_rows() -> tuple[PaperRow, ...]:
    """Every row of every table."""
    return tuple(typed(PaperRow, row, Path("paper.csv")) for row in _read("paper.csv"))


def printed(dataset: str, model: str, scenario: str) -> dict[str, PaperRow]:
    """What the paper's tables have for a network and a request, by method; empty if nothing.

    >>> printed("cifar10", "resnet18", "random 10%")["oeu"].AG
    0.58
    """
    return {
        row.method: row
        for row in paper_rows()
        if (row.dataset, row.scenario) == (dataset, scenario) and row.model.startswith(f"{model}-")
    }


def stated(experiment: str, dataset: str, quantizer: str) -> list[Stated]:
    """What the paper's text says of a figure that has no numbers.

    >>> [(row.method, row.value) for row in stated("runtime", "cifar100", "lsq+")]
    [('retrain', 20.0), ('oeu', 3.0)]
    """
    key = (experiment, dataset, quantizer)
    rows = (typed(Stated, row, Path("stated.csv")) for row in _read("stated.csv"))
    return [row for row in rows if (row.experiment, row.dataset, row.quantizer) == key]


def _read(name: str) -> list[dict[str, str]]:
    text = files("qunlearn.study").joinpath(name).read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return [{**row, "method": NAMES[row["method"]]} for row in rows]
