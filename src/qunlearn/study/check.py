"""Whether a run, or every run of a comparison, is whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.store import study
from qunlearn.store.study import StudyFolder
from qunlearn.study.config import CELLS, TRIALS
from qunlearn.training.check import check_run


def check_folder(path: Path) -> dict[Path, list[str]]:
    """What is wrong with each run in a folder: the run itself, or the cells of a comparison.

    The comparison itself is among them, for its settings and its table.
    """
    if not (path / study.CONFIG).is_file():
        return {path: check_run(path)}
    home = path if (path / CELLS).is_dir() else path.parent
    cells = [
        cell for kind in (CELLS, TRIALS) for cell in (home / kind).glob("*/*") if cell.is_dir()
    ]
    return {path: _faults(StudyFolder(path))} | {cell: _checked(cell) for cell in sorted(cells)}


def _faults(folder: StudyFolder) -> list[str]:
    faults = []
    readers: tuple[Callable[[], object], ...] = (lambda: folder.config, lambda: folder.table)
    for read in readers:
        try:
            read()
        except UserError as error:
            faults.append(str(error))
    return faults


def _checked(cell: Path) -> list[str]:
    try:
        return check_run(cell)
    except UserError as error:
        return [str(error)]
