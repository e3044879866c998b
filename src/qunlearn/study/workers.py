"""Work that is done side by side, in as many processes as are asked for."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any, TypeVar

from qunlearn.children import at_a_time, end, safe_children
from qunlearn.errors import Failure, UserError
from qunlearn.store.info import made_beside
from qunlearn.store.place import named_folders, set_named

J = TypeVar("J")
R = TypeVar("R")


def side_by_side(
    work: Callable[[J], R], jobs: Sequence[J], workers: int
) -> Iterator[tuple[J, R | Failure]]:
    """What comes of each job, as it gets done; one that fails does not end the others."""
    if workers == 1:
        for job in jobs:
            yield job, _tried(work, job)
        return
    workers = min(workers, at_a_time())  # a file may ask for thousands
    context = _Spawning()
    with safe_children():  # its locks start a process, too
        pool = ProcessPoolExecutor(workers, context, _begin, (workers, named_folders()))
    with pool:
        try:
            with safe_children():  # all workers are started by the first job
                waiting = {pool.submit(_tried, work, job): job for job in jobs}
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BrokenProcessPool:
            raise Failure(
                "A worker was ended from outside, perhaps for want of memory; what is finished is "
                "kept: give the same command again, with fewer --workers."
            ) from None
        except BaseException:
            end(context.started)  # what they were at resumes from its checkpoint
            pool.shutdown(cancel_futures=True)
            raise


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


def _tried(work: Callable[[J], R], job: J) -> R | Failure:
    try:
        return work(job)
    except (Failure, UserError) as error:
        return Failure(str(error))
