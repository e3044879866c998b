"""What tests share: a small split, and small settings."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess, SpawnProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file, save_file
from torch import nn

from qunlearn.cli.main import main
from qunlearn.data import Split, load_dataset
from qunlearn.methods import relearn
from qunlearn.runs.config import TrainConfig
from qunlearn.runs.train import train_run

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "subset": 200,
    "model": "cnn",
    "width": 0.125,
    "epochs": 2,
    "batch_size": 50,
    "threads": 1,
}
collect_ignore = ["typed_user.py"]
"""Only mypy reads it: its import would register a method for all tests."""

FEW_STEPS = 2
"""The steps of the relearning probe, where a test is not about it."""


def flags(settings: dict[str, Any]) -> list[Any]:
    """Settings as the words of a command."""
    return [word for k, v in settings.items() for word in (f"--{k.replace('_', '-')}", v)]


def pytest_configure(config: pytest.Config) -> None:
    """Nothing is read from or left in the user's own cache; all workers share another.

    The relearning probe follows each forgetting, but for a few steps only.
    """
    relearn.PROBE_STEPS = FEW_STEPS
    os.fsync = lambda handle: None  # nothing here need survive a power failure, and disks are slow
    torch.set_num_threads(1)  # for fixtures of modules, too
    if "PYTEST_XDIST_WORKER" not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="qunlearn-tests-")
        os.environ["XDG_CACHE_HOME"] = folder.name
        config.add_cleanup(folder.cleanup)


def pytest_collection_finish() -> None:
    """What is loaded by now stays: the garbage collector need not visit it again and again."""
    gc.freeze()


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def digits() -> Split:
    return Split.make(load_dataset("digits", subset=200))


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run, not to be changed; made once for all workers."""
    base = made_once(
        tmp_path_factory,
        "run",
        lambda base: train_run(TrainConfig.parse(SMALL), base / "original"),
    )
    return base / "original"


def made_once(
    tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]
) -> Path:
    """A folder that `make` fills, once for all workers; not to be changed.

    `name` must be another one for each caller.
    """
    base = shared_folder(tmp_path_factory) / name
    done = base.with_name(f"{name}-done")
    with FileLock(base.with_name(f"{name}-lock")):
        if not done.exists():
            shutil.rmtree(base, ignore_errors=True)  # a worker failed at it
            base.mkdir()
            make(base)
            done.touch()
    return base


def trained_once(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    fresh: Callable[[], nn.Module],
    training: Callable[[nn.Module], nn.Module],
) -> nn.Module:
    """A fresh network with the weights that training gives it, once for all workers."""
    base = made_once(
        tmp_path_factory,
        name,
        lambda base: save_file(training(fresh()).state_dict(), base / "weights.safetensors"),
    )
    model = fresh()
    model.load_state_dict(load_file(base / "weights.safetensors"))
    return model.eval()


def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this test run have in common."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    shared.mkdir(exist_ok=True)
    return shared


@pytest.fixture
def qunlearn(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Calls the command line in this process: exit code, standard output, standard error."""

    def call(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        output = capsys.readouterr()
        return int(stop.value.code or 0), output.out, output.err

    return call


@pytest.fixture
def quick_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that this one spawns are forked from one that has loaded what they import.

    To import torch takes each of them three seconds. For tests of what processes compute together,
    not of how they start.
    """
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    forkserver.set_forkserver_preload(["loaded_child"])
    forkserver.ensure_running()
    monkeypatch.setattr(SpawnProcess, "_Popen", staticmethod(ForkServerProcess._Popen))


def pytest_addoption(parser):
    parser.addoption(
        "--instants", type=int, default=2, help="at how many instants each command is killed"
    )


@pytest.fixture
def instants(request):
    return request.config.getoption("--instants")
