"""Work that is done side by side, in as many processes as are asked for."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
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
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), made_beside, (workers,)
    )
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
            pool.shutdown(cancel_futures=True)
            raise


def _tried(work: Callable[[J], R], job: J) -> R | Failure:
    try:
        return work(job)
    except (Failure, UserError) as error:
        return Failure(str(error))
