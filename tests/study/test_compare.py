"""Comparisons: what is made, what is reused, and what the table says."""

import dataclasses
import json
import multiprocessing
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SMALL, made_once
from forked import Started
from quick_study import QUICK, compare_run, config, untimed
from sealed import seal

from qunlearn.cli.main import main
from qunlearn.errors import Failure, UserError
from qunlearn.methods.base import methods
from qunlearn.metrics import auc, average_gap, lira, margin, mean_interval
from qunlearn.runs.config import TrainConfig
from qunlearn.runs.data import split_of
from qunlearn.runs.evaluate import evaluate
from qunlearn.runs.train import train_run
from qunlearn.store.lock import locked
from qunlearn.store.run import Run
from qunlearn.store.study import StudyFolder
from qunlearn.study import cells
from qunlearn.study.compare import planned
from qunlearn.study.config import CompareConfig, folder_name
from qunlearn.study.tune import distance
from qunlearn.study.workers import Pool


@pytest.fixture(scope="module")
def compared(run_folder, tmp_path_factory):
    """A comparison and its table, made once for all workers; each has a copy that it may open."""

    def make(base):
        table = compare_run(config(run_folder), base / "table")
        (base / "table-again.json").write_text(json.dumps(table))

    base = made_once(tmp_path_factory, "compare", make)
    copy = shutil.copytree(base / "table", tmp_path_factory.mktemp("compare") / "table")
    return copy, json.loads((base / "table-again.json").read_text())


def test_every_figure_is_the_cells_own(compared, run_folder):
    out, table = compared
    assert [row["method"] for row in table["rows"]] == ["retrain", "ft", "ga"]
    retrain, ft, _ = table["rows"]
    runs = {
        name: [Run.open(out / "cells" / name / f"seed{seed}") for seed in range(3)]
        for name in ("retrain", "ft")
    }
    for row, name in ((retrain, "retrain"), (ft, "ft")):
        for score in ("FA", "RA", "TA", "MIA"):
            values = [run.metrics[score] for run in runs[name]]
            assert row[score] == pytest.approx(list(mean_interval(values)))
    gaps = [
        average_gap(a.metrics, b.metrics) for a, b in zip(runs["ft"], runs["retrain"], strict=True)
    ]
    assert ft["AG"] == pytest.approx(list(mean_interval(gaps)))
    assert retrain["AG"][0] == 0
    assert retrain["runtime"][0] == 100
    split = split_of(runs["ft"][0])
    labels = split.data.labels[split.forget]
    known = [margin(run.predictions["forget"], labels) for run in runs["retrain"]]
    areas = []
    for seed in range(3):
        others = torch.stack([known[other] for other in range(3) if other != seed])
        own = margin(runs["ft"][seed].predictions["forget"], labels)
        areas.append(auc(lira(own, others), lira(known[seed], others)))
    assert ft["lira"]["AUC"] == pytest.approx(list(mean_interval(areas)))
    assert len(labels) < 100
    assert "TPR at 1 % FPR" not in ft["lira"]
    assert table["noise_floor"]["pairs"] == 3


def test_seeds_share_the_request_and_differ_in_the_network(compared):
    out, _ = compared
    runs = [Run.open(out / "cells" / "retrain" / f"seed{seed}") for seed in range(3)]
    assert len({run.split for run in runs}) == 1
    assert len({run.info.model_sha256 for run in runs}) == 3


def test_a_second_call_makes_nothing_anew(compared, run_folder):
    out, table = compared
    before = {path: path.stat().st_mtime_ns for path in out.rglob("run.json")}
    again = compare_run(config(run_folder, workers=2), out)
    assert again == table
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("run.json")}


def test_more_seeds_and_methods_are_added_to_what_is_there(compared, run_folder, tmp_path):
    out, _ = compared
    copy = shutil.copytree(out, tmp_path / "more")
    settings = {"retrain.epochs": 1, "ga.epochs": 1, "l1-sparse.epochs": 1}
    other = config(run_folder, methods="ga,l1-sparse", seeds=2, settings=settings)
    assert [row["method"] for row in compare_run(other, copy)["rows"]][1:] == ["ga", "l1-sparse"]


def test_cells_with_other_settings_stand_beside_those_that_are_there(
    compared, run_folder, tmp_path
):
    out, table = compared
    copy = shutil.copytree(out, tmp_path / "more")
    longer = {**QUICK["settings"], "ga.epochs": 2}
    changed = compare_run(config(run_folder, settings=longer), copy)
    assert changed["rows"][1] == table["rows"][1]
    assert [cell["settings"]["epochs"] for cell in changed["rows"][2]["cells"]] == [2, 2, 2]
    assert compare_run(config(run_folder), copy) == table


def test_cells_of_a_methods_old_code_are_not_taken_for_the_news(
    compared, run_folder, tmp_path, monkeypatch
):
    out, table = compared
    copy = shutil.copytree(out, tmp_path / "more")
    newer = dataclasses.replace(methods["ga"], revision=2)
    monkeypatch.setitem(methods._entries, "ga", newer)
    changed = compare_run(config(run_folder), copy)
    assert changed["rows"][1] == table["rows"][1]
    for now, before in zip(changed["rows"][2]["cells"], table["rows"][2]["cells"], strict=True):
        assert now["folder"].startswith(f"{before['folder']}-")
        made = Run.open(copy / "cells" / "ga" / now["folder"])
        assert made.info.revision == 2
    assert compare_run(config(run_folder), copy) == changed


def test_another_question_is_refused(compared, run_folder):
    out, _ = compared
    before = (out / "compare.toml").read_text()
    with pytest.raises(UserError, match="has forgotten other samples"):
        compare_run(config(run_folder, random=0.2), out)
    other = {**QUICK["settings"], "retrain.epochs": 2}  # whose cells would stand beside
    with pytest.raises(UserError, match="has forgotten other samples"):
        compare_run(config(run_folder, random=0.2, settings=other), out)
    assert (out / "compare.toml").read_text() == before


@pytest.mark.parametrize(
    ("reached", "least", "workers"), [("ga/seed0", 4, 1), ("retrain/seed2", 1, 2)]
)
def test_killed_in_the_middle_and_started_again_gives_the_same_table(
    compared, run_folder, tmp_path, reached, least, workers
):
    _, table = compared
    words = ["compare", run_folder, "--random", "0.1", "--methods", "ft,ga", "--threads", "1"]
    words += ["--out", tmp_path / "killed", "--json"]
    for name, value in QUICK["settings"].items():
        words += ["--set", f"{name}={value}"]
    words = [str(word) for word in words]
    command = Started([*words, "--workers", str(workers)], tmp_path, tmp_path / "log")
    deadline = time.monotonic() + 120
    while not (tmp_path / "killed" / "cells" / reached).is_dir():  # it is just being made
        assert command.process.is_alive(), command.log.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.killpg(command.group, signal.SIGKILL)
    command.process.join()
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "killed").rglob("run.json")}
    assert least <= len(done) < 9
    assert not (tmp_path / "killed" / "table.json").exists()
    code, printed = Started(words, tmp_path, tmp_path / "log").end(120)
    assert code == 0, printed
    last = json.loads((tmp_path / "killed" / "table.json").read_text())
    assert untimed(last) == untimed({**table, "sha256": last["sha256"]})
    assert done == {path: path.stat().st_mtime_ns for path in done}


def test_a_network_that_was_made_anew_is_noticed(compared, run_folder, tmp_path):
    out, _ = compared
    copy = shutil.copytree(out, tmp_path / "copy")
    cell = copy / "cells" / "ft" / "seed0"
    info = json.loads((cell / "run.json").read_text())
    info["origin"] = "0" * 64
    (cell / "run.json").write_text(json.dumps(info))
    seal(cell)
    with pytest.raises(UserError, match="another network"):
        compare_run(config(run_folder), copy)


def test_the_settings_that_the_studies_searched_for_can_be_used(run_folder):
    file = Path(__file__).parents[2] / "benchmarks" / "results" / "study" / "settings.json"
    planned(config(run_folder, methods="all", settings={}, settings_from=file))


def test_settings_are_taken_from_another_table(compared, run_folder, tmp_path):
    settings = {"retrain.epochs": 1, "ft.epochs": 1, "ga.epochs": 1, "ft.lr": 0.02}
    first = compare_run(config(run_folder, seeds=1, settings=settings), tmp_path / "a")
    first["rows"][1]["trials"], first["select"] = 7, "oracle"
    source = tmp_path / "a" / "table.json"
    source.write_text(json.dumps(first))
    asked = {"methods": "ft,ft[momentum=0.5]", "settings": {"retrain.epochs": 1}, "random": 0.2}
    asked |= {"seeds": 1, "settings_from": source}
    table = compare_run(config(run_folder, **asked), tmp_path / "b")
    _, plain, variant = table["rows"]
    assert plain["settings"] == first["rows"][1]["settings"]
    assert variant["settings"] == {**plain["settings"], "momentum": 0.5}
    assert (plain["trials"], variant["trials"]) == (7, 7)
    assert (table["settings_from"], table["select"]) == (str(source), "oracle")
    refusals = {
        "has no settings for 'rl'": {"methods": "ft,rl"},
        "leave one out": {"tune": 2},
        "not a comparison's table": {"settings_from": tmp_path / "a" / "cells/ft/seed0/run.json"},
        "There is no file": {"settings_from": tmp_path / "nothing.json"},
    }
    for says, other in refusals.items():
        with pytest.raises(UserError, match=says):
            compare_run(config(run_folder, **{**asked, **other}), tmp_path / "c")
        assert not (tmp_path / "c").exists()


def failing(monkeypatch, method, seed):
    """Let one cell fail."""
    real = cells.forget_run

    def forget_run(config, out, **how):
        if (config.method, config.settings["seed"]) == (method, seed):
            raise Failure("The loss became nan.")
        return real(config, out, **how)

    monkeypatch.setattr(cells, "forget_run", forget_run)


def test_a_cell_that_fails_does_not_end_the_comparison(
    compared, run_folder, tmp_path, monkeypatch, capsys
):
    failing(monkeypatch, "ft", 1)
    words = ["compare", run_folder, "--random", 0.1, "--methods", "ft,ga", "--seeds", 2]
    words += ["--threads", 1, "--out", tmp_path / "a"]
    words += [w for name, value in QUICK["settings"].items() for w in ("--set", f"{name}={value}")]
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert ended.value.code == 1
    table = json.loads((tmp_path / "a" / "table.json").read_text())
    assert [row["method"] for row in table["rows"]] == ["retrain", "ga"]
    assert table["failed"] == {"ft": "seed 1: The loss became nan."}
    said = capsys.readouterr()
    assert "ft failed, seed 1: The loss became nan." in said.out
    assert said.err == (
        "qunlearn: Failed: ft; everything else is kept, and the same command tries again.\n"
    )
    failing(monkeypatch, "ga", 0)
    with pytest.raises(Failure, match="Every method failed"):
        compare_run(config(run_folder, methods="ga", seeds=1, settings={}), tmp_path / "b")


def test_without_retrain_there_is_no_comparison(run_folder, tmp_path, monkeypatch):
    failing(monkeypatch, "retrain", 0)
    with pytest.raises(Failure, match="Retrain, which methods are compared with, failed; seed 0"):
        compare_run(config(run_folder), tmp_path / "a")


def test_a_second_machine_joins(compared, run_folder, tmp_path):
    out, table = compared
    copy = shutil.copytree(out, tmp_path / "joined")
    shutil.rmtree(copy / "cells" / "ga" / "seed2")
    saved = (copy / "table.json").read_bytes()
    with pytest.raises(UserError, match="There is no comparison to join"):
        compare_run(config(run_folder, join=True), tmp_path / "nothing")
    with pytest.raises(UserError, match="has seeds = 3, not 2; give the same settings"):
        compare_run(config(run_folder, join=True, seeds=2), copy)
    with locked(copy):  # the machine that began it
        with pytest.raises(UserError, match="Another process is writing"):
            compare_run(config(run_folder), copy)
        joined = compare_run(config(run_folder, join=True), copy)
    assert untimed(joined) == untimed(table)
    assert Run.is_complete(copy / "cells" / "ga" / "seed2")
    assert (copy / "table.json").read_bytes() == saved


def finished(work, jobs):
    with Pool(work, 2) as pool:
        pool.submit(jobs)
        while pool.pending:
            yield from pool.finished()


def test_a_worker_that_is_ended_from_outside_is_a_failure():
    with pytest.raises(Failure, match="fewer --workers"):
        list(finished(signal.raise_signal, [signal.SIGKILL, signal.SIGKILL]))


def test_only_its_own_processes_are_ended_with_it():
    foreign = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    foreign.start()
    try:
        works = finished(time.sleep, [0, 60, 60])
        assert next(works) == (0, None)
        workers = [each for each in multiprocessing.active_children() if each.pid != foreign.pid]
        assert len(workers) == 2
        works.close()
        assert not any(worker.is_alive() for worker in workers)
        assert foreign.is_alive()
    finally:
        foreign.kill()
        foreign.join()


def test_a_cell_without_its_predictions_is_made_again(compared, run_folder, tmp_path):
    out, table = compared
    copy = shutil.copytree(out, tmp_path / "copy")
    (copy / "cells" / "ft" / "seed1" / "predictions.safetensors").unlink()
    assert untimed(compare_run(config(run_folder), copy)) == untimed(table)
    assert (copy / "cells" / "ft" / "seed1" / "predictions.safetensors").is_file()


def test_threads_are_shared_out_among_workers(run_folder, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert config(run_folder, threads=None, workers=3).origin()["threads"] == 2
    assert config(run_folder, threads=5, workers=3).origin()["threads"] == 5
    assert config(run_folder, threads=None).origin()["threads"] is None


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        ({"random": 0.1}, "original-compare-random-10"),
        ({"random": 0.125, "forget_seed": 3}, "original-compare-random-12.5-seed-3"),
        ({"classes": ("3", "cat")}, "original-compare-class-3-cat"),
        ({"ids": "lists/gone.csv"}, "original-compare-ids-gone"),
        ({"where": "user == 42"}, "original-compare-where-user"),
    ],
)
def test_a_comparison_has_a_place_beside_its_run(request_, name):
    asked = CompareConfig.parse({"run": Path("runs/original"), **request_})
    assert asked.usual_out == Path("runs") / name


def test_all_methods_and_variants_of_them():
    every = CompareConfig.parse({"run": "r"}).names
    more = CompareConfig.parse({"run": "r", "methods": "all,calibrated[alpha=0]"}).names
    assert more == [*every, "calibrated[alpha=0]"]


def test_no_two_methods_share_a_folder():
    names = ["ft[lr=1e+5]", "ft[lr=1e-5]", "ft[lr=1e5]", "a:b", "a-b", "a/b", "x[k=1;l=2]"]
    folders = {folder_name(name) for name in names}
    assert len(folders) == len(names)
    assert all("/" not in folder for folder in folders)


def test_without_a_test_part_nothing_is_begun(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (60, 8, 8, 1), np.uint8), np.arange(60) % 3
    np.savez(tmp_path / "few.npz", x_train=images, y_train=labels)
    recipe = {"dataset": str(tmp_path / "few.npz"), "model": "cnn", "epochs": 1, "threads": 1}
    train_run(TrainConfig.parse(recipe), tmp_path / "run")
    asked = CompareConfig.parse({"run": tmp_path / "run", "random": 0.1, "methods": "ga"})
    with pytest.raises(UserError, match="has no test samples of the classes that are retained"):
        compare_run(asked, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_the_search_looks_at(compared):
    out, _ = compared
    run = Run.open(out / "cells" / "ft" / "seed0")
    retrain = Run.open(out / "cells" / "retrain" / "seed0")
    assert distance(run, retrain, "oracle", False) == average_gap(run.metrics, retrain.metrics)
    now, before = run.metrics["parts"], run.metrics["before"]["parts"]
    expected = (
        abs(now["forget"]["accuracy"] - before["held_out"]["accuracy"])
        + abs(now["retain"]["accuracy"] - before["retain"]["accuracy"])
        + abs(now["held_out"]["accuracy"] - before["held_out"]["accuracy"])
        + 100 * abs(now["forget"]["confidence"] - before["held_out"]["confidence"])
    ) / 4
    assert distance(run, None, "heldout", False) == pytest.approx(expected)


def test_the_stored_predictions_give_the_runs_figures(compared, run_folder):
    from qunlearn.runs.model_file import load

    out, _ = compared
    run = Run.open(out / "cells" / "ft" / "seed0")
    split = split_of(run)
    fresh = evaluate(load(run.path), split)
    known = {name: run.metrics[name] for name in ("before", "relearning")}
    assert fresh.to_json() | known == run.metrics
    assert set(run.predictions) == set(split.measured())
    assert all(torch.isfinite(rows).all() for rows in run.predictions.values())


def test_a_list_that_changed_is_noticed(run_folder, tmp_path):
    split = split_of(Run.open(run_folder))
    names = [split.data.ids[row] for row in split.train.tolist()]
    ids = tmp_path / "ids.txt"
    settings = {"retrain.epochs": 1, "ga.epochs": 1}
    asked = {"random": None, "ids": ids, "methods": "ga", "seeds": 1, "settings": settings}
    ids.write_text("\n".join(names[:20]))
    compare_run(config(run_folder, **asked), tmp_path / "a")
    ids.write_text("\n".join(names[20:40]))
    with pytest.raises(UserError, match="other samples"):
        compare_run(config(run_folder, **asked), tmp_path / "a")


def test_variants_stand_side_by_side(run_folder, tmp_path):
    settings = {"retrain.epochs": 1, "oeu.epochs": 1}
    asked = {
        "methods": "oeu, oeu[alpha=0;pairing=once]",
        "seeds": 1,
        "settings": settings,
    }
    table = compare_run(config(run_folder, **asked), tmp_path / "a")
    _, plain, ablated = table["rows"]
    assert ablated["method"] == "oeu[alpha=0;pairing=once]"
    assert (plain["settings"]["alpha"], ablated["settings"]["alpha"]) == (1.0, 0.0)
    assert ablated["settings"]["pairing"] == "once"
    assert plain["settings"]["epochs"] == ablated["settings"]["epochs"] == 1


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"methods": "ft[lr"}, "cannot be read"),
        ({"methods": "ft[lr]"}, "NAME=VALUE"),
        ({"methods": "ft,fft"}, "Unknown method 'fft'"),
        ({"methods": "ft,ft"}, "named twice"),
        ({"methods": "retrain", "settings": {}}, "nothing to compare"),
        ({"settings": {"lr": 1}}, "METHOD.NAME=VALUE"),
        ({"settings": {"calibrated.lr": 1}}, "'calibrated', which is not compared"),
        ({"settings": {"ft.rate": 1}}, "Unknown setting of ft, 'rate'"),
        ({"settings": {"ft.lr": -1}}, "lr = -1"),
        ({"random": None}, "Say what to forget"),
        ({"random": 2.0}, "fraction to forget"),
        ({"retrains_from": "elsewhere"}, "comparison 'elsewhere' has no Retrain of seed 0; name"),
    ],
)
def test_what_is_asked_wrongly_is_said_before_anything_is_made(run_folder, tmp_path, asked, says):
    with pytest.raises(UserError, match=says):
        compare_run(config(run_folder, **asked), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_original_is_noticed_before_anything_is_made(run_folder, tmp_path):
    damaged = shutil.copytree(run_folder, tmp_path / "run")
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"model\.safetensors"):
        compare_run(config(damaged), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_table_that_was_altered_is_refused(tmp_path):
    with StudyFolder.writing(tmp_path / "c", {"seeds": 2}) as folder:
        folder.write_table({"rows": [{"method": "ft", "FA": 72.5}]})
    assert folder.table == {"rows": [{"method": "ft", "FA": 72.5}]}
    path = tmp_path / "c" / "table.json"
    path.write_text(path.read_text().replace("72.5", "71.5"))
    with pytest.raises(UserError, match="has changed since it was written"):
        _ = folder.table
    path.write_text('{"rows": [NaN], "sha256": ""}')
    with pytest.raises(UserError, match="has changed since it was written"):
        _ = folder.table


def test_retrains_start_from_those_of_the_twins_comparison(tmp_path):
    full = {**SMALL, "quantizer": "none", "epochs": 1}
    twin = train_run(TrainConfig.parse(full), tmp_path / "twin")
    few = {**SMALL, "epochs": 1, "lr": 0.004, "start_from": twin.path}
    few_bits = train_run(TrainConfig.parse(few), tmp_path / "few")
    one = {"methods": "ga", "settings": {"ga.epochs": 1}, "seeds": 1}
    compare_run(config(twin.path, **one), tmp_path / "a")
    start = Run.open(tmp_path / "a" / "cells" / "retrain" / "seed0")
    one |= {"methods": "ga,retrain[epochs=2]"}
    compare_run(config(few_bits.path, **one, retrains_from=tmp_path / "a"), tmp_path / "b")
    made = sorted((tmp_path / "b" / "cells").glob("retrain*/seed*"))
    assert len(made) == 2
    for cell in map(Run.open, made):
        assert cell.config["provenance"]["start"] == start.info.model_sha256
        assert cell.config["settings"]["lr"] == 0.004
    # The same start by another name makes nothing anew; another start at the same place does.
    (tmp_path / "x").mkdir()
    again = config(few_bits.path, **one, retrains_from=tmp_path / "x" / ".." / "a")
    compare_run(again, tmp_path / "b")
    assert sorted((tmp_path / "b" / "cells").glob("retrain*/seed*")) == made
    shutil.rmtree(start.path)
    compare_run(config(twin.path, **one | {"settings": {"retrain.lr": 0.2}}), tmp_path / "a")
    compare_run(again, tmp_path / "b")
    assert len([*(tmp_path / "b" / "cells").glob("retrain*/seed*")]) == 4
    shutil.copytree(start.path, start.path.with_name("seed0-other"))
    with pytest.raises(UserError, match="several Retrains of seed 0"):
        compare_run(again, tmp_path / "c")
    assert not (tmp_path / "c").exists()
