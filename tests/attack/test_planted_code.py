"""Modules and programs that lie in the working folder are data: nothing runs them."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch
from conftest import SMALL, flags

from qunlearn.importing import import_from_here, leave_working_folder
from qunlearn.quant import fuse
from qunlearn.study.workers import Pool
from qunlearn.training import precision

MODULES = (
    *("torch", "numpy", "lightning_fabric", "sklearn", "matplotlib", "typer", "rich", "pydantic"),
    *("struct", "signal", "typing", "random", "multiprocessing", "concurrent", "runpy", "pickle"),
    *("tempfile", "subprocess", "socket", "__future__", "resource", "logging", "queue", "heapq"),
    *("string", "selectors", "importlib", "shlex", "json", "csv", "onnx", "optuna", "scipy"),
)
PROGRAMS = ("cc", "as", "ld", "gcc", "cpp", "collect2", "cc1", "python", "sh")


@pytest.fixture
def witness(tmp_path: Path) -> Path:
    """Where planted code would write its name."""
    return tmp_path / "witness"


@pytest.fixture
def planted(tmp_path: Path, witness: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with modules and programs that write their names to the witness."""
    folder = tmp_path / "received"
    folder.mkdir()
    for name in MODULES:
        code = f"open({str(witness)!r}, 'a').write({name!r} + ' ')\n"
        (folder / f"{name}.py").write_text(code)
    for name in PROGRAMS:
        (folder / name).write_text(f"#!/bin/sh\nprintf '%s ' {name} >> {witness}\nexit 1\n")
        (folder / name).chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)  # which a command in this process has set
    return folder


@pytest.mark.usefixtures("planted")
def test_the_plants_would_be_run(witness: Path) -> None:
    """The other tests can fail: a plain `python -c` imports what lies in its folder."""
    subprocess.run([sys.executable, "-c", "import struct"], check=True)
    assert witness.read_text().startswith("struct ")


@pytest.mark.usefixtures("planted")
def test_the_trial_of_a_precision(witness: Path) -> None:
    precision.probe.cache_clear()
    assert precision.probe("cpu", "float32") is None
    assert not witness.exists()


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("path", ["", "."])
def test_workers(witness: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{path}{os.pathsep}{own}")
    answers: dict[int, object] = {}
    with Pool(abs, 2) as pool:
        pool.submit([-1, -2])
        while pool.pending:
            answers |= dict(pool.finished())
    assert answers == {-1: 1, -2: 2}
    assert not witness.exists()
    assert os.environ["PYTHONPATH"] == f"{path}{os.pathsep}{own}"


def test_a_command_its_processes_and_a_network_of_ones_own(planted: Path, witness: Path) -> None:
    """What the user names is found in the working folder, and by every process; nothing else."""
    (planted / "nets.py").write_text(
        "import torch\nfrom parts_of_nets import CLASSES\n"
        "class Net(torch.nn.Sequential):\n    pass\n"
        "def make():\n    return Net(torch.nn.Flatten(), torch.nn.Linear(64, CLASSES))\n"
    )
    (planted / "parts_of_nets.py").write_text("CLASSES = 10\n")
    words = flags({**SMALL, "model": "nets:make", "epochs": 1, "devices": 2, "width": 1.0})
    program = Path(sysconfig.get_path("scripts"), "qunlearn")
    done = subprocess.run(
        [program, "train", *map(str, words), "--out", "run"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert not witness.exists()


@pytest.mark.parametrize("module", ["qunlearn", "qunlearn.cli.main"])
def test_python_m(planted: Path, witness: Path, module: str) -> None:
    for name in ("importlib", "runpy"):  # which Python itself imports before qunlearn
        (planted / f"{name}.py").unlink()
    command = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.startswith("qunlearn "), done.stderr
    assert not witness.exists()


@pytest.fixture
def compiled_anew() -> object:
    fuse.library.cache_clear()
    yield
    fuse.library.cache_clear()


@pytest.mark.usefixtures("compiled_anew")
@pytest.mark.parametrize("entry", ["", ".", "../received"])
def test_the_compiler(
    planted: Path, witness: Path, entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (planted / "stdint.h").write_text("#error planted\n")
    (planted / "math.h").write_text("#error planted\n")
    monkeypatch.setenv("PATH", f"{entry}{os.pathsep}{os.environ['PATH']}")
    for name in ("CPATH", "C_INCLUDE_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "LIBRARY_PATH"):
        monkeypatch.setenv(name, f"{planted}/")
    monkeypatch.setenv("LD_PRELOAD", str(planted / "cc"))
    assert fuse.library(torch.float32)
    assert not witness.exists()


def test_the_working_folder_leaves_the_path(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = planted.parent / "library"
    library.mkdir()
    monkeypatch.setattr(sys, "path", ["", str(planted), ".", str(library), *sys.path])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(("", "../library", ".", *sys.path[4:])))
    monkeypatch.setenv("PATH", os.pathsep.join(("", "bin", "/bin", ".")))
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    leave_working_folder()
    assert sys.path[0] == str(library)
    assert str(planted) not in sys.path
    assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == str(library)
    assert str(planted) not in os.environ["PYTHONPATH"].split(os.pathsep)
    assert os.environ["PATH"] == "/bin"
    assert os.environ["PYTHONSAFEPATH"] == "1"


def test_what_is_installed_is_not_looked_for_in_the_working_folder(
    planted: Path, witness: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    import_from_here("wave")
    assert str(planted) not in sys.path
    (planted / "nets_of_mine.py").write_text("SIZE = 3\n")
    assert import_from_here("nets_of_mine").SIZE == 3
    assert sys.path[-1] == str(planted)
    assert not witness.exists()
