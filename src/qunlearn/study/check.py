"""Whether a run, or a comparison with every run in it, is intact."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.runs.check import Fault, FaultKind, check_run, foreign
from qunlearn.store.layout import PAGE
from qunlearn.store.lock import check_unlocked
from qunlearn.store.place import FOLDER, kind_of
from qunlearn.store.study import CONFIG, JOBS, TABLE, StudyFolder
from qunlearn.study.config import CELLS, SEARCHES, TRIALS


def check_folder(path: Path) -> dict[Path, list[Fault]]:
    """What is wrong with each run in a folder: the run itself, or the cells of a comparison.

    The comparison itself is among them, for its settings, its table and what else is in it.
    """
    if not path.is_dir() or kind_of(path / CONFIG) is None:
        return {path: check_run(path)}
    check_unlocked(path)
    home = path if kind_of(path / CELLS) else path.parent
    kinds = [home / kind for kind in (CELLS, TRIALS) if kind_of(home / kind) == FOLDER]
    methods = [method for kind in kinds for method in _folders(kind)]
    faults = [
        *_unreadable(StudyFolder(path)),
        *foreign(path, (CONFIG, TABLE, PAGE), (CELLS, TRIALS, JOBS, SEARCHES)),
        *(fault for folder in (*kinds, *methods) for fault in foreign(folder, (), _names(folder))),
    ]
    cells = [cell for method in methods for cell in _folders(method)]
    return {path: faults} | {cell: _checked(cell) for cell in sorted(cells)}


def _names(folder: Path) -> list[str]:
    """Methods and cells have names of many kinds; what is no folder is foreign."""
    return [entry.name for entry in folder.iterdir()]


def _folders(path: Path) -> list[Path]:
    return [entry for entry in sorted(path.iterdir()) if kind_of(entry) == FOLDER]


def _unreadable(folder: StudyFolder) -> Iterator[Fault]:
    readers: tuple[Callable[[], object], ...] = (lambda: folder.config, folder.sealed_table)
    for read in readers:
        try:
            read()
        except UserError as error:
            yield Fault(FaultKind.UNREADABLE, folder.path, str(error))


def _checked(cell: Path) -> list[Fault]:
    try:
        return check_run(cell)
    except UserError as error:
        return [Fault(FaultKind.UNREADABLE, cell, str(error))]
