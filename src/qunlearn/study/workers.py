"""A pool of worker processes, which ends only the processes that it started."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from qunlearn.children import at_a_time, end, safe_children
from qunlearn.errors import Failure, UserError
from qunlearn.store.info import made_beside
from qunlearn.store.place import named_folders, set_named

J = TypeVar("J")
R = TypeVar("R")


class Pool(Generic[J, R]):
    """Processes that take jobs as they come; leaving its block ends them.

    Args:
        work: What is done with a job, in a process of its own.
        workers: How many processes, at most as many as there are cores.
    """

    def __init__(self, work: Callable[[J], R], workers: int):
        self.work = work
        self.workers = min(workers, at_a_time())  # a file may ask for thousands
        self.pending: dict[Future[R | Failure], J] = {}
        self._context = _Spawning()
        with safe_children():  # its locks start a process, too
            self._pool = ProcessPoolExecutor(
                self.workers, self._context, _begin, (self.workers, named_folders())
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and not issubclass(kind, Failure):
            end(self._context.started)  # what they were at resumes from its checkpoint
        self._pool.shutdown(cancel_futures=True)

    def submit(self, jobs: Sequence[J]) -> None:
        """Hand over jobs; the first ones start all processes."""
        with self._whole(), safe_children():
            self.pending |= {self._pool.submit(tried, self.work, job): job for job in jobs}

    def finished(self, timeout: float | None = None) -> Iterator[tuple[J, R | Failure]]:
        """The jobs that are done, once one is or the time is over."""
        with self._whole():
            done, _ = wait_for(self.pending, timeout, FIRST_COMPLETED)
            for future in done:
                yield self.pending.pop(future), future.result()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        try:
            yield
        except BrokenProcessPool:
            raise Failure(
                "A worker was ended from outside, perhaps for want of memory; what is finished is "
                "kept: give the same command again, with fewer --workers."
            ) from None


class _Spawning(SpawnContext):
    """Remembers which processes it started: the caller may have others."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[SpawnProcess] = []

    def Process(self, *args: Any, **kwargs: Any) -> SpawnProcess:  # type: ignore[override]
        """A process to be started."""
        self.started.append(SpawnProcess(*args, **kwargs))
        return self.started[-1]


def _begin(workers: int, folders: tuple[Path, ...]) -> None:
    """What a worker does first: it ends when whoever started it does, even by force.

    A signal to all processes of a terminal is answered by that process, which ends its workers.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    made_beside(workers)
    set_named(folders)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_it() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end_with_it, daemon=True).start()


def tried(work: Callable[[J], R], job: J) -> R | Failure:
    """What comes of a job; what goes wrong with it is a `Failure`."""
    try:
        return work(job)
    except (Failure, UserError) as error:
        return Failure(str(error))
