"""Several nodes: two launchers on loopback do what one machine does, and fail with one message."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from conftest import SMALL

import qunlearn as qu
from qunlearn.errors import Failure, UserError
from qunlearn.runs.config import TrainConfig
from qunlearn.runs.request import ForgetConfig
from qunlearn.runs.train import train_run
from qunlearn.store.layout import MODEL
from qunlearn.store.run import Run
from qunlearn.store.weights import read_tensors
from qunlearn.study.config import CompareConfig
from qunlearn.training import devices
from qunlearn.training.config import ComputeConfig
from qunlearn.training.group import Group
from qunlearn.training.launcher import Launcher, launched_by

SECONDS = 240
TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
}
SRUN = {
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NODELIST": "node[07-08]",
    "SLURM_JOB_ID": "1234567",
}


def flags(settings: Mapping[str, object]) -> list[str]:
    words = []
    for name, value in settings.items():
        flag = f"--{name.replace('_', '-')}"
        words += [flag] if value is True else [flag, str(value)]
    return words


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def environment() -> dict[str, str]:
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([*sys.path, tests])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def start(folder: Path, command: list[str], more: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment() | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def by_torchrun(folder: Path, *words: str) -> list[subprocess.Popen[str]]:
    """Two agents of torchrun with a process each, as on two machines."""
    meet = f"--rdzv-backend c10d --rdzv-endpoint 127.0.0.1:{free_port()} --rdzv-id test"
    options = f"--nnodes 2 --nproc-per-node 1 --local-addr 127.0.0.1 {meet} -m qunlearn"
    command = [sys.executable, "-m", "torch.distributed.run", *options.split(), *words]
    return [start(folder, command, {}) for _ in range(2)]


def by_srun(folder: Path, *words: str) -> list[subprocess.Popen[str]]:
    """Two processes with the variables that srun sets; there is no SLURM here."""
    shared = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2", "SLURM_JOB_ID": "1"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [sys.executable, "-m", "qunlearn", *words]
    each = ({"SLURM_PROCID": f"{rank}", "SLURM_LOCALID": "0"} for rank in range(2))
    return [start(folder, command, shared | mine) for mine in each]


def ended(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Exit code, output and messages of each."""
    results = []
    for process in processes:
        out, err = process.communicate(timeout=SECONDS)
        results.append((process.returncode, out, err))
    return results


ONE_STEP = {
    **SMALL,
    "epochs": 1,
    "batch_size": 400,  # one step: rounding has no time to grow
    "quantizer": "none",
    "sync_batchnorm": True,
}


@pytest.mark.cluster
def test_two_nodes_do_what_two_processes_do(tmp_path: Path) -> None:
    results = ended(by_torchrun(tmp_path, "train", *flags(ONE_STEP), "--out", "nodes"))
    assert [code for code, _, _ in results] == [0, 0]
    assert sum("trained on" in out for _, out, _ in results) == 1  # printed once
    assert sum(bool(out) for _, out, _ in results) == 1
    here = train_run(TrainConfig.parse({**ONE_STEP, "devices": 2}), tmp_path / "here")
    assert (tmp_path / "nodes" / MODEL).read_bytes() == here.model_path.read_bytes()
    config = Run.open(tmp_path / "nodes").config
    assert (config["nodes"], config["devices"], config["sync_batchnorm"]) == (2, 1, True)


@pytest.mark.usefixtures("quick_children")
def test_with_shared_statistics_two_processes_see_the_batches_of_one(tmp_path: Path) -> None:
    pair = train_run(TrainConfig.parse({**ONE_STEP, "devices": 2}), tmp_path / "pair")
    alone = train_run(TrainConfig.parse(ONE_STEP), tmp_path / "alone")
    one, two = read_tensors(alone.model_path), read_tensors(pair.model_path)
    for name in one:
        assert torch.allclose(one[name].float(), two[name].float(), rtol=1e-3, atol=1e-5), name


@pytest.mark.cluster
def test_forgetting_and_comparing_on_two_nodes(tmp_path: Path, run_folder: Path) -> None:
    asked = f"{run_folder} --random 0.1 --threads 1".split()
    spawned = [sys.executable, "-m", "qunlearn", "forget", *asked, "--devices", "2", "--out", "a"]
    (alone,) = ended([start(tmp_path, spawned, {})])
    results = ended(by_srun(tmp_path, "forget", *asked, "--out", "b"))
    assert results[0][0] == alone[0] in (0, 3)
    assert (results[1][0], results[1][1:]) == (0, ("", ""))
    assert (tmp_path / "a" / MODEL).read_bytes() == (tmp_path / "b" / MODEL).read_bytes()
    words = "--methods ft --seeds 1 --set ft.epochs=1 --set retrain.epochs=1 --out table"
    results = ended(by_srun(tmp_path, "compare", *asked, *words.split()))
    assert [code for code, _, _ in results] == [0, 0]
    assert (tmp_path / "table" / "table.json").is_file()


@pytest.mark.cluster
@pytest.mark.parametrize("killed", [0, 1])
def test_a_process_that_dies_ends_all(tmp_path: Path, killed: int) -> None:
    settings = {**SMALL, "epochs": 10_000, "threads": 1}
    processes = by_srun(tmp_path, "train", *flags(settings), "--out", "run")
    until = time.monotonic() + SECONDS
    while not (tmp_path / "run" / "history.jsonl").exists():
        assert time.monotonic() < until
        time.sleep(0.1)
    processes[killed].send_signal(signal.SIGKILL)
    results = ended(processes)
    assert not Run.is_complete(tmp_path / "run")
    assert not (tmp_path / "run" / MODEL).exists()
    assert results[killed][0] == -signal.SIGKILL
    assert results[1 - killed][0] == 1
    _, out, err = results[1 - killed]
    assert out == ""
    if killed == 1:  # the one that is left leads
        assert err.startswith("qunlearn: One of the 2 processes has ended")
        assert err.count("\n") == 1
        assert "--resume" in err
    else:
        assert err == ""


@pytest.mark.cluster
def test_a_wrong_request_is_refused_once(tmp_path: Path) -> None:
    words = flags({**SMALL, "threads": 1, "devices": 2})
    results = ended(by_srun(tmp_path, "train", *words, "--out", "run"))
    assert [code for code, _, _ in results] == [2, 0]
    assert results[0][2] == (
        "qunlearn: devices = 2, and srun has started 2 processes, 1 on each of 2 nodes; leave "
        "--devices out.\n"
    )
    assert results[1][1:] == ("", "")
    assert not (tmp_path / "run").exists()


def test_launchers_are_recognised_by_their_variables() -> None:
    assert launched_by(TORCHRUN) == Launcher("torchrun", 1, 4, 1, 2, "node1", 29500)
    assert launched_by(SRUN) == Launcher("srun", 3, 4, 1, 2, "node07", 15000 + 4567)
    # A batch script runs once, whatever it has asked for; so does a task that is alone.
    assert launched_by({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}) is None
    assert launched_by(SRUN | {"SLURM_STEP_NUM_TASKS": "1"}) is None
    assert launched_by({"WORLD_SIZE": "4"}) is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"MASTER_ADDR": ""}, "MASTER_ADDR is not, so that the processes cannot meet"),
        ({"RANK": "4"}, "process 4 of 4"),
        ({"LOCAL_WORLD_SIZE": "3"}, "start equally many processes on each node"),
        ({"LOCAL_WORLD_SIZE": "0"}, "start equally many"),
        ({"WORLD_SIZE": "many"}, "WORLD_SIZE is 'many', which is no whole number"),
    ],
)
def test_variables_that_contradict_each_other(changed: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        launched_by(TORCHRUN | changed)


def test_settings_that_contradict_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "launcher", lambda: launched_by(TORCHRUN))
    assert devices.on_nodes(ComputeConfig()).processes == 4
    placed = devices.on_nodes(ForgetConfig.parse({"run": "a"}))
    assert (placed.devices, placed.nodes) == (2, 2)
    for asked, flag in (({"devices": 1}, "devices"), ({"nodes": 3}, "nodes")):
        with pytest.raises(UserError, match=rf"torchrun has started 4 .* leave --{flag} out"):
            devices.on_nodes(ComputeConfig.parse(asked))
    with pytest.raises(UserError, match="leave --workers out"):
        devices.on_nodes(CompareConfig.parse({"run": "a", "workers": 2}))


def test_nodes_need_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "launcher", lambda: None)
    assert devices.on_nodes(ComputeConfig(nodes=1)).processes == 1
    with pytest.raises(UserError, match=r"nodes = 2 needs .*torchrun --nnodes 2"):
        devices.on_nodes(ComputeConfig(nodes=2))


def test_a_process_that_dies_between_two_tasks_is_a_failure_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = launched_by(TORCHRUN | {"RANK": "0", "LOCAL_RANK": "0"})
    assert first is not None
    joined = Group(first, dist.HashStore())

    def unreachable(self: Group, message: object) -> None:
        raise RuntimeError("[gloo/transport/tcp/pair.cc] Connection closed by peer")

    monkeypatch.setattr(Group, "_send", unreachable)
    with pytest.raises(Failure, match="One of the 4 processes has ended"):
        joined.place(qu.Data((torch.zeros(4, 8, 8), torch.arange(4)), name="toy"))
    with pytest.raises(Failure, match="it failed before"):
        joined.lead(ComputeConfig(), print, lambda: None)
