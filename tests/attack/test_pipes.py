"""Pipes and devices in the place of files: nothing waits for them, and each gets one sentence."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SMALL, flags, made_once
from surroundings import digest, in_time

from qunlearn.errors import UserError
from qunlearn.runs.config import TrainConfig
from qunlearn.runs.forget import forget_run
from qunlearn.runs.request import ForgetConfig
from qunlearn.runs.train import train_run
from qunlearn.store.checksums import read_checksums
from qunlearn.store.files import read_json, sha256
from qunlearn.store.layout import AUDIT, CHECKPOINT, PARTS
from qunlearn.store.lock import LOCK
from qunlearn.store.run import Run
from qunlearn.store.study import StudyFolder
from qunlearn.store.weights import read_header, read_tensors

Command = Callable[..., tuple[int, str, str]]
Plant = Callable[[Path], None]
QUICK = {**SMALL, "model": "cnn", "subset": 60, "epochs": 1, "batch_size": 30}


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


PLANTS = pytest.mark.parametrize("plant", [pipe, device, folder])


@pytest.fixture(scope="module")
def forgotten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run that has forgotten, not to be changed; beside it the one it comes from."""

    def make(base: Path) -> None:
        train_run(TrainConfig.parse(QUICK), base / "original")
        asked = {"run": base / "original", "random": 0.1, "method": "oeu", "threads": 1}
        forget_run(ForgetConfig.parse({**asked, "settings": {"epochs": 1}}), base / "run")

    return made_once(tmp_path_factory, "pipes", make) / "run"


COMMANDS = {
    "explain": lambda run: ("explain", run),
    "describe": lambda run: ("describe", run),
    "evaluate": lambda run: ("evaluate", run),
    "report": lambda run: ("report", run),
    "forget": lambda run: ("forget", run, "--random", "0.1", "--out", run.parent / "new"),
    "export": lambda run: ("export", run, "--out", run.parent / "new.onnx"),
    "check": lambda run: ("check", run),
}
NEEDED_BY = {"history.jsonl": ("explain", "report", "check"), "predictions.safetensors": ("check",)}
"""Who cannot do without the parts that a run can be without."""


@PLANTS
@pytest.mark.parametrize("name", PARTS)
def test_no_command_waits_for_a_part_of_a_run(
    qunlearn: Command, forgotten: Path, tmp_path: Path, name: str, plant: Plant
) -> None:
    run = Path(shutil.copytree(forgotten, tmp_path / "run"))
    (run / name).unlink()
    plant(run / name)
    before = digest(tmp_path)
    for command in NEEDED_BY.get(name, COMMANDS):
        with in_time():
            code, out, err = qunlearn(*COMMANDS[command](run))
        assert code == (1 if command == "check" else 2), (command, out, err)
        assert err.count("\n") == 1, (command, err)
    assert digest(tmp_path) == before


@PLANTS
@pytest.mark.parametrize("name", [CHECKPOINT, LOCK, AUDIT, "history.jsonl", "metrics.json"])
def test_no_resumed_run_waits(
    qunlearn: Command, forgotten: Path, tmp_path: Path, name: str, plant: Plant
) -> None:
    run = Path(shutil.copytree(forgotten.parent / "original", tmp_path / "run"))
    (run / "run.json").unlink()
    (run / name).unlink(missing_ok=True)
    plant(run / name)
    with in_time(30):  # it may do its work
        code, _, err = qunlearn("train", "--resume", "--out", run)
    assert code in (0, 1, 2)
    assert code == 0 or err.count("\n") == 1, err


@PLANTS
def test_check_names_what_is_no_file(
    qunlearn: Command, forgotten: Path, tmp_path: Path, plant: Plant
) -> None:
    """Wherever it is: in a run, in its figures, in a comparison, its cells, trials and figures."""
    table = tmp_path / "table"
    for kind in ("cells", "trials"):
        shutil.copytree(forgotten, table / kind / "ft" / "seed0")
    (table / "compare.toml").write_text("seeds = 1\n")
    StudyFolder(table).write_table({"rows": []})
    places = [table, *(table / kind / "ft" / "seed0" for kind in ("cells", "trials"))]
    for place in places:
        (place / "figures").mkdir()
    assert qunlearn("check", table)[0] == 0
    planted = [place / name for place in places for name in ("odd", "figures/gaps.svg")]
    planted += [place / "report.html" for place in places]
    planted += [table / "cells" / "ft" / "seed1", table / "cells" / "odd", table / "trials" / "odd"]
    for path in planted:
        (device if "ft/seed1" in str(path) or path.parent.name in ("cells", "trials") else plant)(
            path
        )
    before = digest(tmp_path)
    with in_time():
        code, out, _ = qunlearn("check", table)
    assert code == 1
    for path in planted:
        assert f"{str(path)!r} is" in out
    assert digest(tmp_path) == before


@PLANTS
@pytest.mark.parametrize(
    "flag", ["--config", "--metadata", "--ids", "--weights", "--held-out", "--settings-from"]
)
def test_no_file_that_is_named_is_waited_for(
    qunlearn: Command, forgotten: Path, tmp_path: Path, flag: str, plant: Plant
) -> None:
    plant(tmp_path / "odd")
    origin, new = forgotten.parent / "original", ("--out", tmp_path / "new")
    (tmp_path / "ids.txt").write_text("train/1\n")
    adopted = {"--weights": origin / "model.safetensors", "--held-out": tmp_path / "ids.txt"}
    words = {
        "--config": ("train", *new),
        "--metadata": ("train", *flags(QUICK), *new),
        "--ids": ("forget", origin, *new),
        "--settings-from": ("compare", origin, "--random", "0.1", *new),
    }
    other = [word for pair in adopted.items() if pair[0] != flag for word in pair]
    asked = words.get(flag, ("adopt", *flags(QUICK), *other, *new))
    before = digest(tmp_path)
    with in_time():
        code, _, err = qunlearn(*asked, flag, tmp_path / "odd")
    assert (code, err.count("\n")) == (2, 1), err
    assert "odd' is a" in err
    assert digest(tmp_path) == before


@PLANTS
@pytest.mark.parametrize("read", [read_json, sha256, read_header, read_tensors, read_checksums])
def test_no_reader_waits(tmp_path: Path, plant: Plant, read: Callable[[Path], object]) -> None:
    plant(tmp_path / "odd")
    with in_time(), pytest.raises(UserError, match=r"odd' is a .*, not a regular file"):
        read(tmp_path / "odd")


def test_a_pipe_is_no_lock(tmp_path: Path) -> None:
    pipe(tmp_path / LOCK)
    with (
        in_time(),
        pytest.raises(UserError, match=r"\.lock' is a named pipe"),
        Run.writing(tmp_path, {}, "{}"),
    ):
        pass
