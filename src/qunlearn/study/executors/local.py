"""Cells made on this machine: in this process, or in several."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from qunlearn.store.lock import is_locked
from qunlearn.study.executors.base import POLL, THIS_MACHINE, Event, Executor, Finished, Started
from qunlearn.study.executors.config import ExecutorConfig
from qunlearn.study.executors.node import make_in_place
from qunlearn.study.workers import Pool, tried

if TYPE_CHECKING:
    from qunlearn.study.cells import Cell


def local(config: ExecutorConfig, home: Path) -> Executor:
    """One process after another, or a pool of them; the pool starts with the first cell."""
    return InProcess() if config.workers == 1 else LocalPool(config.workers)


class InProcess:
    """Makes one cell after another in this process."""

    out_of_process = False

    def __init__(self) -> None:
        self._waiting: list[Cell] = []

    def submit(self, cells: Sequence[Cell]) -> None:
        """Put cells into the queue."""
        self._waiting += cells

    def events(self) -> Iterator[Event]:
        """Make the next cell."""
        if cells := take_free(self._waiting, 1):
            yield Started(cells[0], THIS_MACHINE)
            yield Finished(cells[0], THIS_MACHINE, tried(_make, cells[0]))
        else:
            time.sleep(POLL)

    def close(self, interrupted: bool) -> None:
        """Nothing is left behind."""


class LocalPool:
    """Makes several cells at a time, each in a process of its own."""

    out_of_process = True

    def __init__(self, workers: int):
        self._workers = workers
        self._pool: Pool[Cell, None] | None = None
        self._waiting: list[Cell] = []

    def submit(self, cells: Sequence[Cell]) -> None:
        """Put cells into the queue."""
        self._waiting += cells

    def events(self) -> Iterator[Event]:
        """Which cells a process has taken, and which are done."""
        if self._pool is None:
            self._pool = Pool(_make, self._workers)
        taken = take_free(self._waiting, self._pool.workers - len(self._pool.pending))
        self._pool.submit(taken)
        yield from (Started(cell, THIS_MACHINE) for cell in taken)
        if not self._pool.pending:
            time.sleep(POLL)
        for cell, outcome in self._pool.finished(POLL):
            yield Finished(cell, THIS_MACHINE, outcome)

    def close(self, interrupted: bool) -> None:
        """End the processes; a cell that is being made resumes from its checkpoint."""
        if self._pool is not None:
            error = InterruptedError() if interrupted else None
            self._pool.__exit__(type(error) if error else None, error, None)


def take_free(waiting: list[Cell], most: int) -> list[Cell]:
    """Remove and return the first cells that no other process is making.

    Those that another process makes, such as one of a machine that joined, stay in the list.
    """
    free = list(islice((cell for cell in waiting if not is_locked(cell.path)), most))
    for cell in free:
        waiting.remove(cell)
    return free


def _make(cell: Cell) -> None:
    make_in_place(cell, timeout=math.inf)
