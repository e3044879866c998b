"""Studies and pools on a Ray cluster and as jobs: the runs of this machine, bit for bit.

Slow: `make test-all` runs them, `make test` does not.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import made_once
from quick_pool import SIZE, audited_runs, weights, weights_made_here
from quick_study import QUICK, compare_run, config, untimed

from qunlearn.errors import UserError
from qunlearn.store.private import private_folder
from qunlearn.store.run import Run
from qunlearn.study.config import MakePoolConfig
from qunlearn.study.executors import ray as on_ray
from qunlearn.study.executors import ray_cluster
from qunlearn.study.pool import make_pool

pytestmark = pytest.mark.cluster

SETTINGS = {**QUICK["settings"], "rl.epochs": 1, "ft.epochs": 20}
TWELVE = {"methods": "ft,ga,rl", "seeds": 3, "settings": SETTINGS}
"""Twelve cells: three seeds of Retrain and of three methods; those of ft take a second or two."""

SECONDS = 1800
"""After which a test gives up: far more than it takes, for machines that do much else."""

MEMORY = 80 << 20
NICENESS = "RAY_worker_niceness"


@pytest.fixture(scope="module")
def here(run_folder, tmp_path_factory):
    """The comparison made on this machine: its weights by cell, and its table."""

    def make(base):
        table = compare_run(config(run_folder, **TWELVE), base / "table")
        (base / "table.json").write_text(json.dumps(table))

    base = made_once(tmp_path_factory, "twelve", make)
    return digests(base / "table"), json.loads((base / "table.json").read_text())


def digests(out):
    return {
        str(path.parent.relative_to(out)): Run.open(path.parent).info.model_sha256
        for path in out.glob("cells/*/*/run.json")
    }


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    on_ray.import_ray()
    os.environ[NICENESS] = "0"  # 15 by default, which starves beside other tests
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "include_dashboard": False, "object_store_memory": MEMORY},
    )
    cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
    cluster.wait_for_nodes()
    yield cluster
    cluster.shutdown()
    del os.environ[NICENESS]


def on_cluster(run_folder, cluster, **other):
    return config(run_folder, **TWELVE, executor="ray", address=cluster.address, **other)


def test_a_node_that_dies_midway_changes_nothing(run_folder, cluster, here, tmp_path, capfd):
    second = cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
    cluster.wait_for_nodes()
    out = tmp_path / "table"

    def kill():
        deadline = time.monotonic() + SECONDS
        while len(list(out.glob("cells/ft/*/.lock"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)  # until each of the two nodes makes a cell
        cluster.remove_node(second, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    table = compare_run(on_cluster(run_folder, cluster), out)
    killer.join()
    weights, expected = here
    assert digests(out) == weights
    assert len(weights) == 12
    assert untimed(table) == untimed(expected)
    said = capfd.readouterr()
    assert "died; it is made again" in said.err
    assert said.out == ""  # of Ray's own words nothing
    assert not [path for path in out.rglob("*") if path.name.startswith(".")]


def blind(task, sent, start_log):
    """The task of a node that sees none of the driver's files: each path has another name there."""
    away = Path("/nowhere")
    needs = tuple(replace(need, path=away / need.field) for need in task.needs)
    task = replace(task, marker=away, needs=needs, working_folder=away)
    return real_run_on_node(task, sent, start_log)


real_run_on_node = on_ray.run_on_node


def test_without_a_shared_folder_cells_and_data_travel(
    run_folder, cluster, here, tmp_path, monkeypatch
):
    """The node sees neither the study's folder nor the run's: all is sent, and taken back."""
    out = tmp_path / "table"
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # no node can import a test
    monkeypatch.setattr(on_ray, "run_on_node", blind)
    table = compare_run(on_cluster(run_folder, cluster), out)
    weights, expected = here
    assert digests(out) == weights
    assert untimed(table) == untimed(expected)
    for cell in out.glob("cells/*/*"):
        assert Run.open(cell).config["run"] == str(run_folder)  # not the node's copy
    assert not list(private_folder("nodes").iterdir())  # the nodes are this machine


def test_other_software_on_a_node_is_named_and_refused(run_folder, cluster, tmp_path, monkeypatch):
    versions = {**ray_cluster.node_versions(), "torch": "9.9"}
    here = ray_cluster.mismatch
    monkeypatch.setattr(
        ray_cluster, "mismatch", lambda name, there, mine: here(name, there, versions)
    )
    with pytest.raises(UserError, match=r"The node '.+' has torch .+, this machine has torch 9.9"):
        compare_run(on_cluster(run_folder, cluster), tmp_path / "table")
    assert not (tmp_path / "table").exists()


def test_a_cell_for_which_no_node_has_room_is_refused(run_folder, cluster, tmp_path):
    with pytest.raises(UserError, match="it needs 64 processors and 0 GPUs, and the largest has 1"):
        compare_run(on_cluster(run_folder, cluster, cpus_per_cell=64), tmp_path / "table")
    assert not (tmp_path / "table").exists()


def command(run_folder, out, *more):
    words = ["compare", run_folder, "--random", "0.1", "--methods", TWELVE["methods"]]
    words += ["--seeds", 3, "--threads", "1", "--out", out, "--json", *more]
    for name, value in TWELVE["settings"].items():
        words += ["--set", f"{name}={value}"]
    return [sys.executable, "-m", "qunlearn.cli.main", *map(str, words)]


def test_a_driver_that_is_killed_resumes_from_finished_cells(run_folder, cluster, here, tmp_path):
    out = tmp_path / "table"
    words = command(run_folder, out, "--executor", "ray", "--address", cluster.address)
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        reached(process, lambda: len(list(out.glob("cells/*/*/run.json"))) >= 5)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    done = {path: path.stat().st_mtime_ns for path in out.glob("cells/*/*/run.json")}
    assert len(done) < 12
    finished = subprocess.run(words, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    weights, expected = here
    assert digests(out) == weights
    assert untimed(json.loads(finished.stdout)) == untimed(expected)
    assert done == {path: path.stat().st_mtime_ns for path in done}


def reached(process, enough):
    deadline = time.monotonic() + SECONDS
    while not enough():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_job_that_is_killed_is_submitted_again(run_folder, here, tmp_path, capfd):
    """Through submitit's local executor, which starts jobs as processes of this machine."""
    out = tmp_path / "table"
    killed = []

    def kill():
        deadline = time.monotonic() + SECONDS
        while not killed and time.monotonic() < deadline:
            for job in jobs_below(out / "jobs"):
                os.kill(job, signal.SIGKILL)
                killed.append(job)
                return
            time.sleep(0.05)

    killer = threading.Thread(target=kill)
    killer.start()
    table = compare_run(config(run_folder, **TWELVE, executor="slurm", address="local"), out)
    killer.join()
    weights, expected = here
    assert killed
    assert digests(out) == weights
    assert untimed(table) == untimed(expected)
    assert "ended without a result (state finished); it is made again" in capfd.readouterr().err
    assert not (out / "jobs").exists()  # nor a pickle of a job


def jobs_below(folder):
    """The processes that make a cell for a job of this folder."""
    if not list(folder.parent.glob("cells/ft/*/.lock")):
        return []
    commands = {int(entry.name): entry for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    return [number for number, entry in commands.items() if is_job(entry, folder)]


def is_job(process, folder):
    try:
        words = (process / "cmdline").read_text().split("\0")
    except OSError:  # it has ended
        return False
    return "submitit.core._submit" in words and str(folder) in words


@pytest.fixture(scope="module")
def pool_here(tmp_path_factory):
    return weights_made_here(tmp_path_factory)


@pytest.mark.parametrize("shared", [True, False])
def test_a_pool_is_made_on_a_cluster(pool_here, cluster, shared, tmp_path_factory, monkeypatch):
    """Where the folder is not shared, the original, its data and the networks travel."""
    if not shared:
        from ray import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[__name__])
        monkeypatch.setattr(on_ray, "run_on_node", blind)
    runs = audited_runs(tmp_path_factory)
    asked = {**SIZE, "executor": "ray", "address": cluster.address}
    pool = make_pool(runs / "ft", MakePoolConfig.parse(asked))
    assert weights(pool.folder) == pool_here
    assert {path.name for path in pool.folder.iterdir()} == {"trained", "unlearned", "ids"}
    for network in pool.folder.glob("trained/*"):
        assert Run.open(network).config["dataset"] == "digits"
    assert not list(private_folder("nodes").iterdir())


def test_jobs_make_a_pool_though_one_is_killed(pool_here, tmp_path_factory):
    runs = audited_runs(tmp_path_factory)
    killed = []

    def kill():
        deadline = time.monotonic() + SECONDS
        while not killed and time.monotonic() < deadline:
            folders = list(runs.glob("original-pool/*/jobs"))
            processes = [path for path in Path("/proc").iterdir() if path.name.isdigit()]
            for process in processes:
                if folders and not killed and is_job(process, folders[0]):
                    os.kill(int(process.name), signal.SIGKILL)
                    killed.append(process.name)
            time.sleep(0.05)

    killer = threading.Thread(target=kill)
    killer.start()
    words = ["audit", "pool", runs / "ft", "--executor", "slurm", "--address", "local", "--json"]
    words += [word for name, value in SIZE.items() for word in (f"--{name}", value)]
    audited = subprocess.run(
        [sys.executable, "-m", "qunlearn.cli.main", *map(str, words)],
        capture_output=True,
        text=True,
    )
    killer.join()
    assert audited.returncode == 0, audited.stderr
    assert killed
    assert "ended without a result (state finished); it is made again" in audited.stderr
    assert json.loads(audited.stdout)["models"] == 6
    (pool,) = runs.glob("original-pool/*")
    assert weights(pool) == pool_here
    assert not (pool / "jobs").exists()
