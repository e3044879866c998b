"""Jobs made as SLURM jobs, submitted by submitit; the study's folder is shared by all nodes.

submitit pickles each SLURM job into a folder, from which that is unpickled. The folder is below the
study's and private to the user. Nothing here unpickles: what a job answers is a small JSON file.
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
from typing import Any

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
    Job,
    Lost,
    Started,
)
from qunlearn.study.executors.config import ExecutorConfig
from qunlearn.study.executors.node import Task, host_name, node_versions, run_task

LOCAL = "local"
"""The address at which jobs are processes of this machine."""

TIME_LIMIT = 24 * 60
"""Minutes that a job may take; SBATCH_TIMELIMIT sets others. Then it saves and is requeued."""

MAX_REQUEUES = 20
"""How often a job is requeued that ran into the limit or was preempted."""

ARRAY_SIZE = 500
"""Maximum number of jobs in a job array; SLURM's own limit is 1,001 by default."""


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
class Submission:
    """What a SLURM job runs. It holds no result: that is the job's folder.

    Attributes:
        task: The job.
        report: The file in which the SLURM job reports its state.
    """

    task: Task
    report: Path

    def __call__(self) -> None:
        """Make the job."""
        write_json(self.report, untyped(JobState(host_name())))
        result = run_task(self.task, lambda need: None)
        write_json(self.report, untyped(JobState(result.where, result.kind, result.message)))

    def checkpoint(self) -> Any:
        """Called before a job is preempted or reaches its time limit: it is requeued as it is.

        The folder has the checkpoint from which it is resumed.
        """
        return import_submitit().helpers.DelayedSubmission(self)


@dataclass
class SlurmExecutor:
    """Submits jobs as job arrays and watches them.

    Attributes:
        submitit: The module.
        config: What a job gets.
        folder: The private folder of jobs.
    """

    submitit: Any
    config: ExecutorConfig
    folder: Path
    out_of_process = True

    _waiting: list[Job] = field(default_factory=list)
    _elsewhere: list[Job] = field(default_factory=list)
    _running: dict[Path, tuple[Job, Any]] = field(default_factory=dict)
    _attempts: dict[Path, int] = field(default_factory=dict)
    _shown: set[Path] = field(default_factory=set)
    _failed: bool = False
    _limit: int = sys.maxsize

    def __post_init__(self) -> None:
        if self.config.address == LOCAL:
            self._limit = at_a_time()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Hand over jobs: as many as SLURM accepts, or as this machine has cores.

        One that a SLURM job of an earlier, killed driver is making is waited for, not submitted.
        """
        make_private(self.folder)
        for job in jobs:
            (self._elsewhere if is_locked(job.path) else self._waiting).append(job)
        self._fill()

    def _fill(self) -> None:
        """Submit what is waiting; what SLURM refuses, in smaller arrays or once jobs have ended."""
        most = ARRAY_SIZE
        while self._waiting and (room := min(most, self._limit - len(self._running))) > 0:
            jobs = self._waiting[:room]
            try:
                self._start(jobs)
            except self.submitit.core.utils.FailedJobError as error:
                if len(jobs) > 1:
                    most = len(jobs) // 2
                    continue
                if not self._running:
                    raise Failure(_refused(error, self.config.address)) from None
                self._limit = len(self._running)  # what the site allows
                return
            del self._waiting[: len(jobs)]

    def _start(self, jobs: Sequence[Job]) -> None:
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
        jobs_at_a_time = at_a_time() if local else 1
        for job in jobs:
            remove(self._report(job))
        with redirect_stderr(StringIO()), executor.batch():  # it prints what it raises
            handles = [executor.submit(self._submission(job, jobs_at_a_time)) for job in jobs]
        for job, handle in zip(jobs, handles, strict=True):
            self._running[job.path] = job, handle

    def _submission(self, job: Job, jobs_at_a_time: int) -> Submission:
        task = Task(
            job,
            named_folders(),
            node_versions(),
            jobs_at_a_time=jobs_at_a_time,
            working_folder=Path.cwd(),
        )
        return Submission(task, self._report(job).absolute())

    def _report(self, job: Job) -> Path:
        key = hashlib.sha256(str(job.path).encode()).hexdigest()[:32]
        return self.folder / f"{key}.json"

    def events(self) -> Iterator[Event]:
        """What the SLURM jobs say, and which of them ended without saying how."""
        time.sleep(POLL / 4 if self.config.address == LOCAL else POLL)
        for job in [job for job in self._elsewhere if not is_locked(job.path)]:
            self._elsewhere.remove(job)
            if job.done:
                yield Finished(job, "an earlier job")
            else:
                self._waiting.append(job)
        for job, handle in list(self._running.values()):
            ended = handle.done()  # before its file is read: it may be written in between
            path = self._report(job)
            state = typed(JobState, read_object(path), path) if path.is_file() else None
            if state and job.path not in self._shown:
                self._shown.add(job.path)
                yield Started(job, state.where)
            if state and state.kind != "running":
                del self._running[job.path]
                yield self._finished(job, state)
            elif ended:
                del self._running[job.path]
                yield self._retry(job, state.where if state else "a node", handle)
        self._fill()

    def _finished(self, job: Job, state: JobState) -> Event:
        if state.kind == "refused":
            raise Failure(f"{state.message} What is finished is kept.")
        if state.kind == "failed":
            return Finished(job, state.where, Failure(state.message))
        return Finished(job, state.where)

    def _retry(self, job: Job, where: str, handle: Any) -> Event:
        count = self._attempts[job.path] = self._attempts.get(job.path, 0) + 1
        self._shown.discard(job.path)
        if count < MAX_ATTEMPTS:
            self._waiting.insert(0, job)
            why = f"its job {handle.job_id} ended without a result (state {handle.state.lower()})"
            return Lost(job, where, why)
        self._failed = True
        log = f"{self.folder}/{handle.job_id}_0_log.err"
        why = f"its job ended {count} times without a result; the last one's log is {log!r}"
        return Finished(job, where, Failure(why))

    def close(self, interrupted: bool) -> None:
        """Cancel what is not finished; delete the pickles and logs, unless a log is needed."""
        for _, handle in self._running.values():
            handle.cancel(check=False)
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
