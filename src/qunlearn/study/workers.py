"""Work that is done side by side, in as many processes as are asked for."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import TypeVar

from qunlearn.errors import Failure, UserError
from qunlearn.store.run import made_beside

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
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin, (workers,))
    with pool:
        waiting = {pool.submit(_tried, work, job): job for job in jobs}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BrokenProcessPool:
            raise Failure(
                "A worker was ended from outside, perhaps for want of memory; what is finished is "
                "kept: give the same command again, with fewer --workers."
            ) from None
        except BaseException:
            for worker in multiprocessing.active_children():
                worker.terminate()  # what they were at goes on from its checkpoint
            pool.shutdown(cancel_futures=True)
            raise


def _begin(workers: int) -> None:
    """What a worker does first: it ends when whoever started it does, even by force."""
    made_beside(workers)
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
