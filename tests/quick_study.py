"""A comparison that takes seconds, and its table without the clock."""

import json

from qunlearn.study import compare as study
from qunlearn.study.config import CompareConfig

QUICK = {
    "random": 0.1,
    "methods": "ft,ga",
    "settings": {"retrain.epochs": 1, "ft.epochs": 1, "ga.epochs": 1},
    "threads": 1,
}


def config(run_folder, **other):
    return CompareConfig.parse({"run": run_folder, **QUICK, **other})


def compare_run(config, out, home=None):
    """The table of a comparison, as its file has it."""
    return study.compare_run(config, out, home).to_json()


def untimed(table):
    """The table without what depends on the clock, and without the relearning probe.

    The probe is shortened in the tests' own processes (conftest.py), but not in those they start.
    """
    text = json.loads(json.dumps(table))
    for row in text["rows"]:
        row.pop("seconds"), row.pop("runtime"), row.pop("evenly_timed")
        row.pop("relearned", None)
        for cell in row["cells"]:
            cell.pop("seconds"), cell.pop("workers")
            cell["metrics"].pop("relearning", None)
    return text
