"""What an executor is: jobs go in, events come out, and the job's folder is the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from qunlearn.errors import Failure
from qunlearn.study.executors.config import ExecutorConfig

if TYPE_CHECKING:
    from qunlearn.runs.data_config import DataConfig
    from qunlearn.study.executors.needs import Need
    from qunlearn.training.config import Config

MAX_ATTEMPTS = 4
"""Attempts at a job whose worker or node dies, before it counts as failed."""

POLL = 1.0
"""Seconds after which `events` returns even if nothing happened."""


THIS_MACHINE = "this machine"
"""The place of jobs that are made without a cluster."""


class Job(Protocol):
    """A run that is made once in its folder, here or on a node: a cell, a network of a pool."""

    @property
    def method(self) -> str:
        """What is done, for the display."""

    @property
    def seed(self) -> int:
        """Its seed, for the display."""

    @property
    def config(self) -> Config:
        """What it is made with."""

    @property
    def path(self) -> Path:
        """The folder that its run is kept in."""

    @property
    def done(self) -> bool:
        """Whether its run is there."""

    def check(self) -> None:
        """Raise if a link leads to its folder, or a finished run there is another."""

    def make(self) -> None:
        """Make it in its folder, or resume it where it was interrupted."""

    def make_at(self, path: Path, paths: Mapping[str, Path], data: DataConfig | None) -> None:
        """Make it in another folder, or from files at other places; its record names its own.

        Args:
            path: The folder.
            paths: Where what it needs is on this node, by `Need.field`.
            data: Where the data is, as its record says it; None if where it is found here.
        """

    def needs(self) -> tuple[Need, ...]:
        """What it reads: a run first, that run's data last."""

    def place(self) -> DataConfig:
        """Where the data is on this machine, as its record says it."""


@dataclass(frozen=True)
class Started:
    """A job is being made."""

    job: Job
    where: str


@dataclass(frozen=True)
class Lost:
    """The worker or the node of a job died; it is resumed, or made again."""

    job: Job
    where: str
    why: str


@dataclass(frozen=True)
class Finished:
    """A job is complete in its folder, or has failed."""

    job: Job
    where: str
    failure: Failure | None = None


Event = Started | Lost | Finished


class Executor(Protocol):
    """Makes jobs somewhere. A `Finished` without a failure means: the folder is complete."""

    out_of_process: bool
    """Whether other processes than this one make the jobs."""

    def submit(self, jobs: Sequence[Job]) -> None:
        """Hand over jobs that are to be made."""

    def events(self) -> Iterator[Event]:
        """What happened since the last call; waits up to `POLL` seconds for something."""

    def close(self, interrupted: bool) -> None:
        """End what is still being made, and leave nothing behind."""


Opener = Callable[[ExecutorConfig, Path], Executor]
"""Opens an executor for the study in a folder; raises what is wrong, and writes nothing."""
