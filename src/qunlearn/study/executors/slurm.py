"""Cells made as SLURM jobs, submitted by submitit; the study's folder is shared by all nodes.

submitit pickles each job into a folder, which the job unpickles. That folder is below the study's
and private to the user. Nothing here unpickles: what a job answers is a small JSON file.
"""

from __future__ import annotations

import hashlib
import logging
import math
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qunlearn.children import at_a_time
from qunlearn.errors import Failure, UserError
from qunlearn.store.files import read_object, remove, write_json
from qunlearn.store.lock import is_locked
from qunlearn.store.parcel import delete_private, make_private
from qunlearn.store.place import named_folders
from qunlearn.store.study import JOBS
from qunlearn.store.typed import typed, untyped
from qunlearn.study.executors.base import (
    ATTEMPTS,
    POLL,
    Event,
    Executor,
    Finished,
    Lost,
    Started,
)
from qunlearn.study.executors.config import ExecutorConfig
from qunlearn.study.executors.node import Order, answer, host, node_versions

if TYPE_CHECKING:
    from qunlearn.study.cells import Cell

LOCAL = "local"
"""The address at which jobs are processes of this machine."""

MINUTES = 24 * 60
"""The time limit of a job; SBATCH_TIMELIMIT sets another. At its end a job saves and requeues."""

TIMEOUTS = 20
"""How often a job is requeued that ran into the limit or was preempted."""

ARRAY = 500
"""Cells in one job array; SLURM's own limit is 1,001 by default."""


def on_slurm(config: ExecutorConfig, home: Path) -> Executor:
    """Check that jobs can be submitted from here."""
    submitit = need_submitit()
    if config.address != LOCAL and shutil.which("srun") is None:
        raise UserError(
            "SLURM is not on this machine: there is no srun. Give the command on a login node, or "
            "try it here with --address local."
        )
    return SlurmExecutor(submitit, config, home / JOBS)


def need_submitit() -> Any:
    """submitit, or the way to get it."""
    try:
        import submitit
    except ImportError:
        raise UserError(
            "--executor slurm needs submitit, which is not installed; run: pip install "
            "'qunlearn[slurm]'."
        ) from None
    logging.getLogger("submitit").setLevel(logging.ERROR)
    return submitit


@dataclass(frozen=True)
class JobState:
    """What a job reports of itself: where it runs, then how it ended.

    Attributes:
        where: The node.
        kind: Running; or one of `Answer`'s kinds.
        message: Why it failed or was refused.
    """

    where: str
    kind: str = "running"
    message: str = ""


@dataclass(frozen=True)
class CellJob:
    """What a job runs. It holds no result: that is the cell's folder.

    Attributes:
        order: The cell.
        report: The file in which the job reports its state.
    """

    order: Order
    report: Path

    def __call__(self) -> None:
        """Make the cell."""
        write_json(self.report, untyped(JobState(host())))
        result = answer(self.order, lambda need: None)
        write_json(self.report, untyped(JobState(result.where, result.kind, result.message)))

    def checkpoint(self) -> Any:
        """Called before a job is preempted or reaches its time limit: it is requeued as it is.

        The cell's folder has the checkpoint from which it is resumed.
        """
        return need_submitit().helpers.DelayedSubmission(self)


@dataclass
class SlurmExecutor:
    """Submits cells as job arrays and watches them.

    Attributes:
        submitit: The module.
        config: What a cell gets.
        folder: The private folder of jobs.
    """

    submitit: Any
    config: ExecutorConfig
    folder: Path
    apart = True

    _waiting: list[Cell] = field(default_factory=list)
    _elsewhere: list[Cell] = field(default_factory=list)
    _jobs: dict[Path, tuple[Cell, Any]] = field(default_factory=dict)
    _attempts: dict[Path, int] = field(default_factory=dict)
    _shown: set[Path] = field(default_factory=set)
    _failed: bool = False

    def submit(self, cells: Sequence[Cell]) -> None:
        """Hand over cells: all as job arrays, or as many at a time as this machine has cores.

        A cell that a job of an earlier, killed driver is making is waited for, not submitted.
        """
        make_private(self.folder)
        for cell in cells:
            (self._elsewhere if is_locked(cell.path) else self._waiting).append(cell)
        self._fill()

    def _fill(self) -> None:
        local = self.config.address == LOCAL
        room = at_a_time() - len(self._jobs) if local else ARRAY
        while self._waiting and room > 0:
            cells, self._waiting = self._waiting[:room], self._waiting[room:]
            self._start(cells)
            room = 0 if local else ARRAY

    def _start(self, cells: Sequence[Cell]) -> None:
        local = self.config.address == LOCAL
        executor = self.submitit.AutoExecutor(
            self.folder.absolute(),
            cluster=LOCAL if local else "slurm",
            **{f"{LOCAL if local else 'slurm'}_max_num_timeout": TIMEOUTS},
        )
        wanted: dict[str, object] = {"timeout_min": MINUTES, "name": "qunlearn"}
        wanted["gpus_per_node"] = math.ceil(self.config.gpus_per_cell)
        if not local:
            wanted["cpus_per_task"] = math.ceil(self.config.cpus_per_cell)
            if self.config.address:
                wanted["slurm_partition"] = self.config.address
        executor.update_parameters(**wanted)
        beside = at_a_time() if local else 1
        for cell in cells:
            remove(self._report(cell))
        with executor.batch():
            jobs = [executor.submit(self._job(cell, beside)) for cell in cells]
        for cell, job in zip(cells, jobs, strict=True):
            self._jobs[cell.path] = cell, job

    def _job(self, cell: Cell, beside: int) -> CellJob:
        order = Order(cell, named_folders(), node_versions(), beside=beside, working=Path.cwd())
        return CellJob(order, self._report(cell).absolute())

    def _report(self, cell: Cell) -> Path:
        key = hashlib.sha256(str(cell.path).encode()).hexdigest()[:32]
        return self.folder / f"{key}.json"

    def events(self) -> Iterator[Event]:
        """What the jobs say, and which of them ended without saying how."""
        time.sleep(POLL / 4 if self.config.address == LOCAL else POLL)
        for cell in [cell for cell in self._elsewhere if not is_locked(cell.path)]:
            self._elsewhere.remove(cell)
            if cell.done:
                yield Finished(cell, "an earlier job")
            else:
                self._waiting.append(cell)
        for cell, job in list(self._jobs.values()):
            ended = job.done()  # before its file is read: it may be written in between
            path = self._report(cell)
            state = typed(JobState, read_object(path), path) if path.is_file() else None
            if state and cell.path not in self._shown:
                self._shown.add(cell.path)
                yield Started(cell, state.where)
            if state and state.kind != "running":
                del self._jobs[cell.path]
                yield self._finished(cell, state)
            elif ended:
                del self._jobs[cell.path]
                yield self._again(cell, state.where if state else "a node", job)
        self._fill()

    def _finished(self, cell: Cell, state: JobState) -> Event:
        if state.kind == "refused":
            raise Failure(f"{state.message} What is finished is kept.")
        if state.kind == "failed":
            return Finished(cell, state.where, Failure(state.message))
        return Finished(cell, state.where)

    def _again(self, cell: Cell, where: str, job: Any) -> Event:
        count = self._attempts[cell.path] = self._attempts.get(cell.path, 0) + 1
        self._shown.discard(cell.path)
        if count < ATTEMPTS:
            self._waiting.insert(0, cell)
            why = f"its job {job.job_id} ended without a result (state {job.state.lower()})"
            return Lost(cell, where, why)
        self._failed = True
        log = f"{self.folder}/{job.job_id}_0_log.err"
        why = f"its job ended {count} times without a result; the last one's log is {log!r}"
        return Finished(cell, where, Failure(why))

    def close(self, interrupted: bool) -> None:
        """Cancel what is not finished; delete the pickles and logs, unless a log is needed."""
        for _, job in self._jobs.values():
            job.cancel(check=False)
        if not interrupted and not self._failed:
            delete_private(self.folder)
