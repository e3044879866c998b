"""Replacing several files of a run folder as one: a kill at any instant is recovered from.

The new files are written to a folder of their own. Once all are there, a marker says so; from then
on they are moved into place, `run.json` last; after a kill, the next process completes the move.
"""

from __future__ import annotations

import os
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

from qunlearn.store.files import read_json, remove, sweep, write_json, writing
from qunlearn.store.layout import FIGURE_NAME, FIGURES, INFO
from qunlearn.store.place import FILE, FOLDER, kind_of, names_in, opened

STAGE, READY = ".erasing", "ready.json"


def new_stage(run: Path) -> Path:
    """An empty folder for the new files of a run."""
    stage = run / STAGE
    with writing(stage), opened(stage, make=True) as folder:
        for name in names_in(folder):
            os.unlink(name, dir_fd=folder)
    return stage


def is_ready(run: Path) -> bool:
    """Whether all new files of a run are there, and only have to be moved."""
    return kind_of(run / STAGE / READY) == FILE


def set_ready(run: Path, removed: list[str]) -> None:
    """Say that all new files are there; `removed` names the files that are to go."""
    write_json(run / STAGE / READY, {"removed": removed})


def move_in(run: Path) -> None:
    """Move the new files into place, and delete those that are to go; may be repeated."""
    removed = [str(name) for name in read_json(run / STAGE / READY)["removed"]]
    with writing(run), opened(run) as here, opened(run / STAGE) as stage:
        names = [name for name in names_in(stage) if name != READY]
        if INFO in names:  # not yet moved: until it is, the run counts as unfinished
            with suppress(FileNotFoundError):
                os.unlink(INFO, dir_fd=here)
        for name in sorted(names, key=lambda name: name == INFO):
            os.replace(name, name, src_dir_fd=stage, dst_dir_fd=here)
        os.fsync(here)
    for name in removed:
        remove(run / Path(name).name)
    delete_figures(run)
    with writing(run), opened(run) as here:
        with suppress(FileNotFoundError):
            os.unlink(f"{STAGE}/{READY}", dir_fd=here)
        os.rmdir(STAGE, dir_fd=here)
        sweep(here)


def delete_figures(folder: Path) -> None:
    """Delete the figures of a report."""
    figures = folder / FIGURES
    if kind_of(figures) == FOLDER:
        with writing(figures), opened(figures) as handle:
            for name in names_in(handle):
                if FIGURE_NAME.fullmatch(name):
                    os.unlink(name, dir_fd=handle)
        delete_empty(figures)


def delete_files(folder: Path, names: list[str], kept: Container[str] = ()) -> None:
    """Delete files of a folder, in this order; `run.json` first makes a run count as unfinished."""
    for name in names:
        if name not in kept and kind_of(folder / name) not in (None, FOLDER):
            remove(folder / name)


def delete_empty(folder: Path) -> None:
    """Delete a folder if nothing is in it, but for what a killed writer left."""
    with suppress(OSError), opened(folder) as handle:
        sweep(handle)
    with suppress(OSError), opened(folder.parent) as parent:
        os.rmdir(folder.name, dir_fd=parent)
