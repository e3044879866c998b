"""Jobs made on this machine: in this process, or in several."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from qunlearn.store.lock import is_locked
from qunlearn.study.executors.base import (
    POLL,
    THIS_MACHINE,
    Event,
    Executor,
    Finished,
    Job,
    Started,
)
from qunlearn.study.executors.config import ExecutorConfig
from qunlearn.study.executors.node import make_in_place
from qunlearn.study.workers import Pool, tried


def local(config: ExecutorConfig, home: Path) -> Executor:
    """One process after another, or a pool of them; the pool starts with the first job."""
    return InProcess() if config.workers == 1 else LocalPool(config.workers)


class InProcess:
    """Makes one job after another in this process."""

    out_of_process = False

    def __init__(self) -> None:
        self._waiting: list[Job] = []

    def submit(self, jobs: Sequence[Job]) -> None:
        """Put jobs into the queue."""
        self._waiting += jobs

    def events(self) -> Iterator[Event]:
        """Make the next job."""
        if jobs := take_free(self._waiting, 1):
            yield Started(jobs[0], THIS_MACHINE)
            yield Finished(jobs[0], THIS_MACHINE, tried(_make, jobs[0]))
        else:
            time.sleep(POLL)

    def close(self, interrupted: bool) -> None:
        """Nothing is left behind."""


class LocalPool:
    """Makes several jobs at a time, each in a process of its own."""

    out_of_process = True

    def __init__(self, workers: int):
        self._workers = workers
        self._pool: Pool[Job, None] | None = None
        self._waiting: list[Job] = []

    def submit(self, jobs: Sequence[Job]) -> None:
        """Put jobs into the queue."""
        self._waiting += jobs

    def events(self) -> Iterator[Event]:
        """Which jobs a process has taken, and which are done."""
        if self._pool is None:
            self._pool = Pool(_make, self._workers)
        taken = take_free(self._waiting, self._pool.workers - len(self._pool.pending))
        self._pool.submit(taken)
        yield from (Started(job, THIS_MACHINE) for job in taken)
        if not self._pool.pending:
            time.sleep(POLL)
        for job, outcome in self._pool.finished(POLL):
            yield Finished(job, THIS_MACHINE, outcome)

    def close(self, interrupted: bool) -> None:
        """End the processes; a job that is being made resumes from its checkpoint."""
        if self._pool is not None:
            error = InterruptedError() if interrupted else None
            self._pool.__exit__(type(error) if error else None, error, None)


def take_free(waiting: list[Job], most: int) -> list[Job]:
    """Remove and return the first jobs that no other process is making.

    Those that another process makes, such as one of a machine that joined, stay in the list.
    """
    free = list(islice((job for job in waiting if not is_locked(job.path)), most))
    for job in free:
        waiting.remove(job)
    return free


def _make(job: Job) -> None:
    make_in_place(job, timeout=math.inf)
