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
from qunlearn.store.lock import locked
from qunlearn.store.run import Run
from qunlearn.study import cells, tune
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


@pytest.mark.usefixtures("quick_children")
def test_a_search_by_two_workers_finds_what_one_finds(run_folder, tmp_path):
    settings = {"retrain.epochs": 1, "ft.epochs": 1, "rl.epochs": 1}
    asked = {"methods": "ft,rl", "seeds": 1, "tune": 2, "settings": settings}
    alone = compare_run(config(run_folder, **asked), tmp_path / "a")
    beside = compare_run(config(run_folder, **asked, workers=2), tmp_path / "b")
    assert untimed(alone) == untimed(beside)
    assert [cell["workers"] for row in beside["rows"] for cell in row["cells"]] == [2, 2, 2]


def stubbed(monkeypatch, asked, folder, far):
    """Opens searches whose trials are folders in which nothing is made."""
    rates = {}

    def trial(self, name, settings, number):
        path = folder / f"{number}"
        path.mkdir(exist_ok=True)
        rates[path] = settings["lr"]
        done = (path / "done").exists()
        return SimpleNamespace(path=path, done=done, check=lambda: None, rate=settings["lr"])

    monkeypatch.setattr(tune.Run, "open", lambda path: SimpleNamespace(info=RunInfo(), path=path))
    monkeypatch.setattr(tune, "distance", lambda run, *_: far(rates[run.path]))
    monkeypatch.setattr(cells.Cells, "trial", trial)

    def search():
        home = cells.Cells(asked, folder / "home", "asked")
        return tune.Search(home, SimpleNamespace(info=RunInfo()), False, "ft", {})

    return search


def test_two_machines_share_one_search(run_folder, tmp_path, monkeypatch):
    asked = config(run_folder, methods="ft", tune=10, settings={})
    search = stubbed(monkeypatch, asked, tmp_path, lambda rate: (rate - 0.02) ** 2)
    machines, made = (search(), search()), ([], [])
    while (first := machines[0].next()) is not None:
        with locked(first.path):  # while the one machine makes a trial, the other makes the next
            second = machines[1].next()
        for machine, cell, numbers in zip(machines, (first, second), made, strict=True):
            if cell is not None:
                numbers.append(machine.number)
                (cell.path / "done").touch()
                machine.tell(cell, None)
    assert machines[1].next() is None
    assert sorted(made[0] + made[1]) == [*range(10)]  # each once
    assert made[0] == [0, 2, 4, 6, 8]
    best = {
        machine._settings[min(machine._distances, key=machine._distances.get)]["lr"]
        for machine in machines
    }
    assert len(best) == 1
    assert all(len(machine.runs) == 10 for machine in machines)


def test_the_journal_gives_the_trials_of_a_search_in_memory(run_folder, tmp_path, monkeypatch):
    """A reference: ask and tell of optuna in memory, with the same seeds and distances."""
    import optuna

    def far(value):
        return (value - 0.02) ** 2

    asked = config(run_folder, methods="ft", tune=12, settings={})
    study, rates = optuna.create_study(), []
    low, high = 1e-3, 1e-1
    space = {"lr": optuna.distributions.FloatDistribution(low, high, log=True)}
    for number in range(12):
        study.sampler = optuna.samplers.TPESampler(seed=number)
        if number < tune.SPREAD:
            first = {"lr": 0.01} if number == 0 else tune.spread(number, {"lr": Range(low, high)})
            study.enqueue_trial(first)
        trial = study.ask(space)
        rates.append(trial.params["lr"])
        study.tell(trial, far(rates[-1]))

    search = stubbed(monkeypatch, asked, tmp_path, far)
    made = []
    for stop in (3, 7, 12):  # killed twice with a trial under way, and resumed from the journal
        again = search()
        for number in range(stop):
            cell = again.next()
            assert again.number == number
            made[number:] = [cell.rate]
            if number < stop - 1 or stop == 12:
                again.tell(cell, None)
    assert made == rates
    assert again.next() is None


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
    with pytest.raises(UserError, match=r"pip install 'qunlearn\[tune\]'"):
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
    real = cells.forget_run

    def explode(config, out, **how):
        if out.name == "0":
            raise Failure("the loss became nan")
        return real(config, out, **how)

    monkeypatch.setattr(cells, "forget_run", explode)
    settings = {"retrain.epochs": 1, "ft.epochs": 1}
    asked = {"methods": "ft", "seeds": 1, "tune": 2, "settings": settings}
    row = compare_run(config(run_folder, **asked), tmp_path / "a")["rows"][1]
    assert row["trials"] == 2
    assert row["settings"]["lr"] != 0.01
