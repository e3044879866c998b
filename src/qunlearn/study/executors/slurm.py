"""Cells made as SLURM jobs, submitted by submitit; the study's folder is shared by all nodes.

submitit pickles each job into a folder, which the job unpickles. That folder is below the study's
and private to the user. Nothing here unpickles: what a job answers is a small JSON file.
"""

from __future__ import annotations

import hashlib
import logging
import math
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from io import StringIO
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
    MAX_ATTEMPTS,
    POLL,
    Event,
    Executor,
    Finished,
    Lost,
    Started,
)
from qunlearn.study.executors.config import ExecutorConfig
from qunlearn.study.executors.node import CellTask, host_name, node_versions, run_task

if TYPE_CHECKING:
    from qunlearn.study.cells import Cell

LOCAL = "local"
"""The address at which jobs are processes of this machine."""

TIME_LIMIT = 24 * 60
"""Minutes that a job may take; SBATCH_TIMELIMIT sets others. Then it saves and is requeued."""

MAX_REQUEUES = 20
"""How often a job is requeued that ran into the limit or was preempted."""

ARRAY_SIZE = 500
"""Maximum number of cells in a job array; SLURM's own limit is 1,001 by default."""


def on_slurm(config: ExecutorConfig, home: Path) -> Executor:
    """Check that jobs can be submitted from here."""
    submitit = import_submitit()
    if config.address != LOCAL and shutil.which("srun") is None:
        raise UserError(
            "SLURM is not on this machine: there is no srun. Give the command on a login node, or "
            "try it here with --address local."
        )
    return SlurmExecutor(submitit, config, home / JOBS)


def import_submitit() -> Any:
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
        kind: Running; or one of `TaskResult`'s kinds.
        message: Why it failed or was refused.
    """

    where: str
    kind: str = "running"
    message: str = ""


@dataclass(frozen=True)
class CellJob:
    """What a job runs. It holds no result: that is the cell's folder.

    Attributes:
        task: The cell.
        report: The file in which the job reports its state.
    """

    task: CellTask
    report: Path

    def __call__(self) -> None:
        """Make the cell."""
        write_json(self.report, untyped(JobState(host_name())))
        result = run_task(self.task, lambda need: None)
        write_json(self.report, untyped(JobState(result.where, result.kind, result.message)))

    def checkpoint(self) -> Any:
        """Called before a job is preempted or reaches its time limit: it is requeued as it is.

        The cell's folder has the checkpoint from which it is resumed.
        """
        return import_submitit().helpers.DelayedSubmission(self)


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
    out_of_process = True

    _waiting: list[Cell] = field(default_factory=list)
    _elsewhere: list[Cell] = field(default_factory=list)
    _jobs: dict[Path, tuple[Cell, Any]] = field(default_factory=dict)
    _attempts: dict[Path, int] = field(default_factory=dict)
    _shown: set[Path] = field(default_factory=set)
    _failed: bool = False
    _limit: int = sys.maxsize

    def __post_init__(self) -> None:
        if self.config.address == LOCAL:
            self._limit = at_a_time()

    def submit(self, cells: Sequence[Cell]) -> None:
        """Hand over cells: as many as SLURM accepts, or as this machine has cores.

        A cell that a job of an earlier, killed driver is making is waited for, not submitted.
        """
        make_private(self.folder)
        for cell in cells:
            (self._elsewhere if is_locked(cell.path) else self._waiting).append(cell)
        self._fill()

    def _fill(self) -> None:
        """Submit what is waiting; what SLURM refuses, in smaller arrays or once jobs have ended."""
        most = ARRAY_SIZE
        while self._waiting and (room := min(most, self._limit - len(self._jobs))) > 0:
            cells = self._waiting[:room]
            try:
                self._start(cells)
            except self.submitit.core.utils.FailedJobError as error:
                if len(cells) > 1:
                    most = len(cells) // 2
                    continue
                if not self._jobs:
                    raise Failure(_refused(error, self.config.address)) from None
                self._limit = len(self._jobs)  # what the site allows
                return
            del self._waiting[: len(cells)]

    def _start(self, cells: Sequence[Cell]) -> None:
        local = self.config.address == LOCAL
        executor = self.submitit.AutoExecutor(
            self.folder.absolute(),
            cluster=LOCAL if local else "slurm",
            **{f"{LOCAL if local else 'slurm'}_max_num_timeout": MAX_REQUEUES},
        )
        wanted: dict[str, object] = {"timeout_min": TIME_LIMIT, "name": "qunlearn"}
        wanted["gpus_per_node"] = math.ceil(self.config.gpus_per_cell)
        if not local:
            wanted["slurm_array_parallelism"] = ARRAY_SIZE  # else submitit lets 256 run at a time
            wanted["cpus_per_task"] = math.ceil(self.config.cpus_per_cell)
            if self.config.address:
                wanted["slurm_partition"] = self.config.address
        executor.update_parameters(**wanted)
        cells_at_a_time = at_a_time() if local else 1
        for cell in cells:
            remove(self._report(cell))
        with redirect_stderr(StringIO()), executor.batch():  # it prints what it raises
            jobs = [executor.submit(self._job(cell, cells_at_a_time)) for cell in cells]
        for cell, job in zip(cells, jobs, strict=True):
            self._jobs[cell.path] = cell, job

    def _job(self, cell: Cell, cells_at_a_time: int) -> CellJob:
        task = CellTask(
            cell,
            named_folders(),
            node_versions(),
            cells_at_a_time=cells_at_a_time,
            working_folder=Path.cwd(),
        )
        return CellJob(task, self._report(cell).absolute())

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
                yield self._retry(cell, state.where if state else "a node", job)
        self._fill()

    def _finished(self, cell: Cell, state: JobState) -> Event:
        if state.kind == "refused":
            raise Failure(f"{state.message} What is finished is kept.")
        if state.kind == "failed":
            return Finished(cell, state.where, Failure(state.message))
        return Finished(cell, state.where)

    def _retry(self, cell: Cell, where: str, job: Any) -> Event:
        count = self._attempts[cell.path] = self._attempts.get(cell.path, 0) + 1
        self._shown.discard(cell.path)
        if count < MAX_ATTEMPTS:
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


def _refused(error: Exception, partition: str | None) -> str:
    """What SLURM says of a job that it does not accept, in one line."""
    reason = " ".join(str(error).split()) or type(error).__name__
    where = f" of partition {partition!r}" if partition else ""
    return (
        f"SLURM refused a job{where}: {reason}. Check --address, --cpus-per-cell, --gpus-per-cell "
        "and the SBATCH_ variables. What is finished is kept."
    )
