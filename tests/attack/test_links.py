"""Links in a folder from a stranger: nothing is written or deleted through them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SMALL, flags, made_once
from quick_study import config
from surroundings import digest, folders_there

from qunlearn.errors import UserError
from qunlearn.runs.config import TrainConfig
from qunlearn.runs.train import train_run
from qunlearn.store.cache import memory_mapped
from qunlearn.store.layout import CHECKPOINT, PARTS
from qunlearn.store.lock import LOCK
from qunlearn.store.place import named
from qunlearn.store.run import Run
from qunlearn.study.cells import Cells
from qunlearn.study.compare import compare_run
from qunlearn.study.workers import Pool

Command = Callable[..., tuple[int, str, str]]
SETTINGS = {"retrain.epochs": 1, "ft.epochs": 1}
QUICK = {**SMALL, "model": "cnn", "subset": 60, "epochs": 1, "batch_size": 30}
RESUME = ("--resume", "--out")


@pytest.fixture(scope="module")
def compared(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison, not to be changed."""
    asked = config(run_folder, methods="ft", seeds=1, settings=SETTINGS)
    base = made_once(tmp_path_factory, "compared", lambda base: compare_run(asked, base / "table"))
    return base / "table"


@pytest.fixture
def victim(tmp_path: Path, run_folder: Path) -> Path:
    """A folder that is nobody's business: figures of somebody, and runs, one of them unfinished."""
    path = tmp_path / "victim"
    (path / "figures").mkdir(parents=True)
    for name in ("gaps.svg", "image.png", "thesis.txt"):
        (path / "figures" / name).write_text("somebody's work")
    for name in ("unfinished", "finished"):
        shutil.copytree(run_folder, path / name / "seed0")
    (path / "unfinished" / "seed0" / "run.json").unlink()
    (path / "unfinished" / "seed0" / CHECKPOINT).write_text("hours of work")
    (path / "unfinished" / "seed0" / ".writing-abc").write_text("half")
    return path


def planted(source: Path, place: Path) -> Path:
    """A copy of a folder as a stranger might send it."""
    return Path(shutil.copytree(source, place / "received"))


def test_figures_are_not_written_through_a_link(
    qunlearn: Command, forgotten: Path, compared: Path, victim: Path, tmp_path: Path
) -> None:
    for source in (forgotten, compared):
        folder = planted(source, tmp_path)
        (folder / "figures").symlink_to(victim / "figures")
        before = digest(victim, folder)
        code, _, err = qunlearn("report", folder)
        assert (code, err.count("\n")) == (2, 1)
        assert "figures' is a link, and qunlearn writes nothing through it" in err
        assert digest(victim, folder) == before
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["report.html", "figures/gaps.svg", "figures/conflict-x.png"])
def test_a_page_takes_the_place_of_a_link(
    qunlearn: Command, forgotten: Path, victim: Path, tmp_path: Path, name: str
) -> None:
    folder = planted(forgotten, tmp_path)
    (folder / "figures").mkdir()
    (folder / name).symlink_to(victim / "figures" / "gaps.svg")
    before = digest(victim)
    assert qunlearn("report", folder)[0] == 0
    assert digest(victim) == before
    assert not (folder / name).is_symlink()


@pytest.mark.parametrize("kind", ["unfinished", "finished", "figures", "nowhere"])
@pytest.mark.parametrize("where", ["cells", "cells/ft", "cells/ft/seed0", "trials"])
def test_a_comparison_makes_no_cell_through_a_link(
    qunlearn: Command, compared: Path, victim: Path, tmp_path: Path, where: str, kind: str
) -> None:
    folder = planted(compared, tmp_path)
    if where == "trials":  # which are made by a search alone
        text = (folder / "compare.toml").read_text().replace("tune = 0", "tune = 2")
        (folder / "compare.toml").write_text(text)
        shutil.rmtree(folder / "cells" / "ft")
    else:
        shutil.rmtree(folder / where)
    target = victim / kind / ("seed0" if where.endswith("seed0") else "")
    (folder / where).symlink_to(target)
    before = digest(victim)
    code, _, err = qunlearn("compare", *RESUME, folder)
    assert (code, err.count("\n")) in {(2, 1), (1, 1)}, err
    assert f"{where}' is a link" in err
    assert digest(victim) == before


def test_workers_follow_no_link_either(tmp_path: Path, victim: Path, run_folder: Path) -> None:
    """They are other processes, which are told what the user named."""
    with named(tmp_path / "table"):
        with Pool(folders_there, 2) as pool:
            pool.submit([0])
            ((_, found),) = pool.finished()
        assert found == (tmp_path / "table",)
        (tmp_path / "table" / "cells").mkdir(parents=True)
        (tmp_path / "table" / "cells" / "ft").symlink_to(victim / "unfinished")
        own = config(run_folder, methods="ft", seeds=1, settings=SETTINGS)
        cell = Cells(own, tmp_path / "table", "").cell("ft", {}, 0)
        before = digest(victim)
        with pytest.raises(UserError, match="ft' is a link"):
            cell.make()
        with pytest.raises(UserError, match="ft' is a link"):
            Run.open(run_folder).copy_to(cell.path)
        with pytest.raises(UserError, match="ft' is a link"):
            Run.discard(cell.path)
        assert digest(victim) == before


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was begun and interrupted."""

    def make(base: Path) -> None:
        train_run(TrainConfig.parse(QUICK), base / "run")
        (base / "run" / "run.json").unlink()

    return made_once(tmp_path_factory, "unfinished", make) / "run"


WRITTEN = [name for name in (*PARTS, CHECKPOINT, ".writing-0123456789abcdef") if name != "run.json"]


@pytest.mark.parametrize("target", ["new", "figures/thesis.txt", "finished/seed0"])
@pytest.mark.parametrize("names", [WRITTEN[2:], ["config.toml"], ["split.json"], ["run.json"]])
def test_a_resumed_run_writes_through_no_link(
    qunlearn: Command,
    unfinished: Path,
    victim: Path,
    tmp_path: Path,
    names: list[str],
    target: str,
) -> None:
    """Neither to a file that is there nor to one that would be made."""
    folder = planted(unfinished, tmp_path)
    for name in names:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(victim / target / (name if target.endswith("0") else ""))
    before = digest(victim)
    code, _, err = qunlearn("train", *RESUME, folder)
    assert code in (0, 2), err
    assert code == 0 or err.count("\n") == 1
    assert digest(victim) == before


@pytest.mark.parametrize("target", ["new", "figures/thesis.txt"])
def test_a_lock_is_no_link(
    qunlearn: Command, unfinished: Path, compared: Path, victim: Path, tmp_path: Path, target: str
) -> None:
    for command, source in (("train", unfinished), ("compare", compared)):
        folder = planted(source, tmp_path)
        (folder / LOCK).symlink_to(victim / target)
        before = digest(victim)
        code, _, err = qunlearn(command, *RESUME, folder)
        assert (code, err.count("\n")) == (2, 1)
        assert ".lock' is a link" in err
        assert digest(victim) == before
        shutil.rmtree(folder)


def test_an_audit_takes_the_place_of_a_link(
    qunlearn: Command, forgotten: Path, victim: Path, tmp_path: Path
) -> None:
    folder = planted(forgotten, tmp_path)
    (victim / "audit.json").write_text("{}")
    (folder / "audit.json").symlink_to(victim / "audit.json")
    before = digest(victim)
    assert qunlearn("audit", "bits", folder, "--bits", "4")[0] == 0
    assert digest(victim) == before
    assert "bits" in json.loads((folder / "audit.json").read_text())


def test_the_folder_that_is_named_may_be_a_link(
    qunlearn: Command, victim: Path, tmp_path: Path
) -> None:
    """It is the user who typed it."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    assert qunlearn("train", *flags(QUICK), "--out", tmp_path / "runs" / "a")[0] == 0
    assert Run.is_complete(tmp_path / "disk" / "a")
    (tmp_path / "b").symlink_to(tmp_path / "disk" / "a")
    assert qunlearn("train", *RESUME, tmp_path / "b")[0] == 0


def test_a_cache_is_not_written_through_a_link(tmp_path: Path, victim: Path) -> None:
    import numpy as np

    (tmp_path / "cache").mkdir()
    for name in ("set.key.npy", "set.key.json", "set.old.npy", ".writing-0"):
        (tmp_path / "cache" / name).symlink_to(victim / "figures" / "thesis.txt")
    before = digest(victim)
    pixels = np.zeros((2, 3), np.uint8)
    memory_mapped(tmp_path / "cache", "set", "key", pixels.shape, [pixels], dict)
    assert digest(victim) == before
