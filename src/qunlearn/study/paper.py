"""The paper's figures, as it prints them, with what contradicts itself noted."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

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
}
"""What the paper calls a method, and what we do."""


@cache
def paper_rows() -> tuple[Mapping[str, Any], ...]:
    """Every row of every table: table, dataset, model, scenario, method, the figures, a note."""
    text = files("qunlearn.study").joinpath("paper.csv").read_text(encoding="utf-8")
    return tuple(
        {
            **row,
            "method": NAMES[row["method"]],
            **{k: float(row[k]) for k in ("FA", "RA", "TA", "MIA", "AG")},
        }
        for row in csv.DictReader(text.splitlines())
    )


def printed(table: str, dataset: str, scenario: str) -> dict[str, Mapping[str, Any]]:
    """The rows of one block of one table, by method; empty if the paper has no figures for it.

    >>> printed("main", "cifar10", "random 10%")["oeu"]["AG"]
    0.58
    """
    return {
        row["method"]: row
        for row in paper_rows()
        if (row["table"], row["dataset"], row["scenario"]) == (table, dataset, scenario)
    }
