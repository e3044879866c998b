"""Cells made on this machine: in this process, or in several."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qunlearn.study.executors.base import POLL, Event, Executor, Finished, Started
from qunlearn.study.executors.config import ExecutorConfig
from qunlearn.study.executors.node import make_in_place
from qunlearn.study.workers import Pool, tried

if TYPE_CHECKING:
    from qunlearn.study.cells import Cell

HERE = "this machine"


def local(config: ExecutorConfig, home: Path) -> Executor:
    """One process after another, or a pool of them; the pool starts with the first cell."""
    return InProcess() if config.workers == 1 else LocalPool(config.workers)


class InProcess:
    """Makes one cell after another in this process."""

    apart = False

    def __init__(self) -> None:
        self._waiting: deque[Cell] = deque()

    def submit(self, cells: Sequence[Cell]) -> None:
        """Put cells into the queue."""
        self._waiting += cells

    def events(self) -> Iterator[Event]:
        """Make the next cell."""
        if self._waiting:
            cell = self._waiting.popleft()
            yield Started(cell, HERE)
            yield Finished(cell, HERE, tried(_make, cell))

    def close(self, interrupted: bool) -> None:
        """Nothing is left behind."""


class LocalPool:
    """Makes several cells at a time, each in a process of its own."""

    apart = True

    def __init__(self, workers: int):
        self._workers = workers
        self._pool: Pool[Cell, None] | None = None
        self._shown: set[Path] = set()

    def submit(self, cells: Sequence[Cell]) -> None:
        """Hand cells to the pool."""
        if self._pool is None:
            self._pool = Pool(_make, self._workers)
        self._pool.submit(cells)

    def events(self) -> Iterator[Event]:
        """Which cells a process has taken, and which are done."""
        if self._pool is None:
            return
        # A pool marks one job more as running than it has processes.
        running = [cell for future, cell in self._pool.pending.items() if future.running()]
        for cell in running[: self._pool.workers]:
            if cell.path not in self._shown:
                self._shown.add(cell.path)
                yield Started(cell, HERE)
        for cell, outcome in self._pool.finished(POLL):
            yield Finished(cell, HERE, outcome)

    def close(self, interrupted: bool) -> None:
        """End the processes; a cell that is being made resumes from its checkpoint."""
        if self._pool is not None:
            error = InterruptedError() if interrupted else None
            self._pool.__exit__(type(error) if error else None, error, None)


def _make(cell: Cell) -> None:
    make_in_place(cell)
