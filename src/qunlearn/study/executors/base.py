"""What an executor is: cells go in, events come out, and the cell's folder is the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from qunlearn.errors import Failure
from qunlearn.study.executors.config import ExecutorConfig

if TYPE_CHECKING:
    from qunlearn.study.cells import Cell

MAX_ATTEMPTS = 4
"""Attempts at a cell whose worker or node dies, before it counts as failed."""

POLL = 1.0
"""Seconds after which `events` returns even if nothing happened."""


THIS_MACHINE = "this machine"
"""The place of cells that are made without a cluster."""


@dataclass(frozen=True)
class Started:
    """A cell is being made."""

    cell: Cell
    where: str


@dataclass(frozen=True)
class Lost:
    """The worker or the node of a cell died; it is resumed, or made again."""

    cell: Cell
    where: str
    why: str


@dataclass(frozen=True)
class Finished:
    """A cell is complete in its folder, or has failed."""

    cell: Cell
    where: str
    failure: Failure | None = None


Event = Started | Lost | Finished


class Executor(Protocol):
    """Makes cells somewhere. A `Finished` without a failure means: the folder is complete."""

    out_of_process: bool
    """Whether other processes than this one make the cells."""

    def submit(self, cells: Sequence[Cell]) -> None:
        """Hand over cells that are to be made."""

    def events(self) -> Iterator[Event]:
        """What happened since the last call; waits up to `POLL` seconds for something."""

    def close(self, interrupted: bool) -> None:
        """End what is still being made, and leave nothing behind."""


Opener = Callable[[ExecutorConfig, Path], Executor]
"""Opens an executor for the study in a folder; raises what is wrong, and writes nothing."""
