"""The search for settings."""

import itertools
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from quick_study import compare_run, config, untimed

from qunlearn.errors import Failure, UserError
from qunlearn.methods import Range
from qunlearn.metrics import average_gap
from qunlearn.store.info import RunInfo
from qunlearn.store.run import Run
from qunlearn.study import tune
from qunlearn.study.tune import distance


def test_the_search_starts_at_the_default_stays_in_range_and_goes_on(run_folder, tmp_path):
    settings = {"retrain.epochs": 1, "ft.epochs": 1}
    asked = {"methods": "ft", "seeds": 1, "tune": 3, "settings": settings, "select": "oracle"}
    table = compare_run(config(run_folder, **asked), tmp_path / "a")
    trials = [Run.open(path.parent) for path in (tmp_path / "a" / "trials").rglob("run.json")]
    trials.sort(key=lambda run: int(run.path.name))
    rates = [run.config["settings"]["lr"] for run in trials]
    assert rates[0] == 0.01
    assert all(1e-3 <= rate <= 1e-1 for rate in rates)
    assert len(set(rates)) == 3
    retrain = Run.open(tmp_path / "a" / "cells" / "retrain" / "seed0")
    best = min(trials, key=lambda run: average_gap(run.metrics, retrain.metrics))
    row = table["rows"][1]
    assert (row["trials"], table["select"]) == (3, "oracle")
    assert row["settings"]["lr"] == best.config["settings"]["lr"]
    cell = Run.open(tmp_path / "a" / "cells" / "ft" / "seed0")
    assert cell.info == best.info  # its time too: the trial is the cell, and was made once
    assert cell.predictions.keys() == best.predictions.keys()

    shutil.rmtree(tmp_path / "a" / "trials" / "ft" / "2")
    shutil.rmtree(tmp_path / "a" / "cells" / "ft")
    again = compare_run(config(run_folder, **asked), tmp_path / "a")
    assert untimed(again) == untimed(table)

    made = {run.path: run.info for run in trials}
    more = compare_run(config(run_folder, **{**asked, "tune": 5}), tmp_path / "a")
    assert more["rows"][1]["trials"] == 5
    assert len(list((tmp_path / "a" / "trials").rglob("run.json"))) == 5
    for number in (0, 1):
        path = tmp_path / "a" / "trials" / "ft" / f"{number}"
        assert Run.open(path).info == made[path]
    assert untimed(compare_run(config(run_folder, **asked), tmp_path / "a")) == untimed(table)


def test_a_search_by_two_workers_finds_what_one_finds(run_folder, tmp_path):
    settings = {"retrain.epochs": 1, "ft.epochs": 1, "rl.epochs": 1}
    asked = {"methods": "ft,rl", "seeds": 1, "tune": 2, "settings": settings}
    alone = compare_run(config(run_folder, **asked), tmp_path / "a")
    beside = compare_run(config(run_folder, **asked, workers=2), tmp_path / "b")
    assert untimed(alone) == untimed(beside)
    assert [cell["workers"] for row in beside["rows"] for cell in row["cells"]] == [2, 2, 2]


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_early_trials_are_spread_over_the_range(dimensions):
    ranges = {f"s{axis}": Range(0.0, 1.0, log=False) for axis in range(dimensions)}
    for name in ranges:
        values = sorted(tune.spread(number, ranges)[name] for number in range(1, tune.SPREAD))
        edges = [0.0, *values, 1.0]
        widest = max(b - a for a, b in itertools.pairwise(edges))
        assert values[0] >= 0
        assert values[-1] <= 1
        assert widest < 3 / tune.SPREAD


def test_without_optuna_the_remedy_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match="pip install optuna"):
        tune.need_optuna()


def test_on_whole_classes_the_search_wants_nothing_to_be_right():
    def run(forget):
        same = {"samples": 10, "entropy": 0.1}
        unseen = {"accuracy": 90.0, "confidence": 0.9, **same}
        then = {"held_out": unseen, "retain": {"accuracy": 99.0, "confidence": 0.9, **same}}
        parts = {**then, "forget": {**forget, **same}, "test_forgotten": unseen}
        metrics = {"parts": parts, "before": {"parts": {**then, "forget": unseen}}}
        return SimpleNamespace(path=Path("run"), metrics=metrics, info=RunInfo())

    gone = run({"accuracy": 0.0, "confidence": 0.0})
    known = run({"accuracy": 90.0, "confidence": 0.9})
    assert distance(gone, None, "heldout", True) == 0
    assert distance(known, None, "heldout", True) > 40
    # Classes that an earlier request took away say nothing of this one.
    assert distance(known, None, "heldout", False) == 0


def test_a_trial_that_explodes_is_a_trial_all_the_same(run_folder, tmp_path, monkeypatch):
    real = tune.run_cells

    def explode(cells, workers, title):
        if cells[0].path.name == "0":
            return [Failure("the loss became nan")]
        return real(cells, workers, title)

    monkeypatch.setattr(tune, "run_cells", explode)
    settings = {"retrain.epochs": 1, "ft.epochs": 1}
    asked = {"methods": "ft", "seeds": 1, "tune": 2, "settings": settings}
    row = compare_run(config(run_folder, **asked), tmp_path / "a")["rows"][1]
    assert row["trials"] == 2
    assert row["settings"]["lr"] != 0.01
