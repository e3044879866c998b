"""Jobs made on a Ray cluster, as tasks; a job whose worker or node dies is submitted again."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qunlearn.errors import Failure, UserError
from qunlearn.store.files import marker_file
from qunlearn.store.parcel import Files, unpack_run
from qunlearn.store.place import named_folders
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
from qunlearn.study.executors.local import take_free
from qunlearn.study.executors.needs import Need, pack
from qunlearn.study.executors.node import (
    Task,
    TaskResult,
    delete_sent,
    host_name,
    node_versions,
    run_task,
)
from qunlearn.study.executors.ray_cluster import (
    CONNECT_TIMEOUT,
    checked_slots,
    connect,
    import_ray,
    slots_of,
)

if TYPE_CHECKING:
    from qunlearn.runs.data_config import DataConfig

WINDOW = 2
"""Jobs that are submitted for each one that the cluster can make at a time."""

RECOUNT = 10.0
"""Seconds after which the nodes of the cluster are counted again."""

SLOTLESS = 600.0
"""Seconds without a node that has room for a job, after which the study ends."""


def on_ray(config: ExecutorConfig, home: Path) -> Executor:
    """Connect to the cluster, and check each node's software."""
    ray = import_ray()
    connect(ray, config.address or "auto")
    try:
        return RayExecutor(ray, config, home, checked_slots(ray, config))
    except BaseException:
        ray.shutdown()
        raise


class StartLog:
    """Which jobs nodes have begun, for the driver's display; an actor in the cluster."""

    def __init__(self) -> None:
        self._begun: list[tuple[Path, str]] = []

    def began(self, path: Path, where: str) -> None:
        """A job was begun."""
        self._begun.append((path, where))

    def take(self) -> list[tuple[Path, str]]:
        """What was begun since this was last asked."""
        begun, self._begun = self._begun, []
        return begun


def run_on_node(task: Task, sent: dict[str, list[Any]], start_log: Any) -> TaskResult:
    """The task that a node runs; each reference is in a list, so that it is fetched if needed."""
    import ray

    start_log.began.remote(task.job.path, host_name())

    def fetch(need: Need) -> Files | None:
        refs = sent.get(need.folder)
        files: Files | None = ray.get(refs[0]) if refs else None
        return files

    return run_task(task, fetch)


@dataclass
class RayExecutor:
    """Submits jobs as tasks and waits for them.

    Attributes:
        ray: The module.
        config: What a job gets.
        home: The folder of the study.
        slots: How many jobs each node can make at a time.
    """

    ray: Any
    config: ExecutorConfig
    home: Path
    slots: dict[str, int]
    out_of_process = True

    _waiting: list[Job] = field(default_factory=list)
    _running: dict[Any, Job] = field(default_factory=dict)
    _attempts: dict[Path, int] = field(default_factory=dict)
    _where: dict[Path, str] = field(default_factory=dict)
    _sent: dict[str, list[Any]] = field(default_factory=dict)
    _places: dict[tuple[str, Path | None], DataConfig] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)
    _marker: Path | None = None
    _polled: float = 0.0
    _recount_at: float = 0.0
    _last_slot: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        options = {"num_cpus": self.config.cpus_per_cell, "num_gpus": self.config.gpus_per_cell}
        # Tasks are repeated here, not by Ray, so that what died is shown and counted.
        self._remote = self.ray.remote(max_retries=0, **options)(run_on_node)
        self._start_log = self.ray.remote(num_cpus=0, max_restarts=-1)(StartLog).remote()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Hand over jobs; a few more than there is room for are with Ray at a time."""
        if self._marker is None:
            self._marker = self._stack.enter_context(marker_file(self.home)).absolute()
        self._waiting += jobs
        self._fill()

    def _fill(self) -> None:
        room = WINDOW * sum(self.slots.values()) - len(self._running)
        for job in take_free(self._waiting, max(0, room)):
            needs = job.needs()
            task = Task(
                job,
                named_folders(),
                node_versions(),
                jobs_at_a_time=max(self.slots.values(), default=1),
                marker=self._marker,
                needs=needs,
                data=self._place_of(job, needs),
                study=self._study,
                working_folder=Path.cwd(),
            )
            sent = {n.folder: self._sent[n.folder] for n in needs if n.folder in self._sent}
            self._running[self._remote.remote(task, sent, self._start_log)] = job

    @property
    def _study(self) -> str:
        """The name of the folder on each node for what is sent there."""
        return hashlib.sha256(str(self.home.absolute()).encode()).hexdigest()[:32]

    def _place_of(self, job: Job, needs: Sequence[Need]) -> DataConfig:
        """Where a job's data is; looked up once for all jobs that read the same."""
        key = needs[-1].folder, needs[-1].path
        if key not in self._places:
            self._places[key] = job.place()
        return self._places[key]

    def events(self) -> Iterator[Event]:
        """What the cluster has done."""
        refs = list(self._running)
        if not refs:  # another machine makes what is waiting, or there is no node
            time.sleep(POLL)
        ready = self._ready(refs, 1, POLL) and self._ready(refs, len(refs), 0)
        yield from self._start_events(bool(ready))
        for ref in ready:
            yield from self._events_of(ref, self._running.pop(ref))
        self._recount_slots()
        self._fill()

    def _ready(self, refs: list[Any], count: int, timeout: float) -> list[Any]:
        """The tasks that have ended, once `count` have; results stay on their nodes until read."""
        if not refs:
            return []
        ready: list[Any]
        ready, _ = self.ray.wait(refs, num_returns=count, timeout=timeout, fetch_local=False)
        return ready

    def _recount_slots(self) -> None:
        """See which nodes have joined or died; the study ends if there are none for long."""
        now = time.monotonic()
        if now < self._recount_at:
            return
        self._recount_at = now + RECOUNT
        self.slots = slots_of(self.ray, self.config)
        if self.slots:
            self._last_slot = now
        elif now - self._last_slot > SLOTLESS:
            raise Failure(
                f"For {SLOTLESS:g} s no node of the Ray cluster has had room for a cell; start "
                "nodes, and give the same command again. What is finished is kept."
            )

    def _start_events(self, ready: bool) -> Iterator[Event]:
        if ready and time.monotonic() - self._polled < POLL:
            return
        self._polled = time.monotonic()
        try:
            begun = self.ray.get(self._start_log.take.remote(), timeout=POLL)
        except self.ray.exceptions.RayError:  # its node died or is busy; the display alone needs it
            return
        jobs = {job.path: job for job in self._running.values()}
        for path, where in begun:
            if path in jobs:
                self._where[path] = where
                yield Started(jobs[path], where)

    def _events_of(self, ref: Any, job: Job) -> Iterator[Event]:
        errors = self.ray.exceptions
        try:
            result: TaskResult = self.ray.get(ref)
        except errors.RayTaskError:
            raise  # a bug of ours, with its trace
        except errors.RayError as error:  # the worker or the node died, or lacked memory
            yield from self._retry(job, _cause_of_death(error))
            return
        if result.kind == "missing":
            self._put(result, job)
            self._waiting.insert(0, job)
        elif result.kind == "refused":
            raise Failure(f"{result.message} What is finished is kept.")
        elif result.kind == "failed":
            yield Finished(job, result.where, Failure(result.message))
        else:
            if result.files is not None:
                unpack_run(job.path, result.files)
            yield Finished(job, result.where)

    def _retry(self, job: Job, why: str) -> Iterator[Event]:
        count = self._attempts[job.path] = self._attempts.get(job.path, 0) + 1
        where = self._where.get(job.path, "a node")
        if count < MAX_ATTEMPTS:
            self._waiting.insert(0, job)
            yield Lost(job, where, why)
        else:
            yield Finished(job, where, Failure(f"{why}, {count} times"))

    def _put(self, result: TaskResult, job: Job) -> None:
        """Put what a node lacks into the object store, once; each node fetches it once."""
        missing = {need.folder for need in result.missing} - self._sent.keys()
        needs = job.needs()
        for need in needs:
            if need.folder not in missing:
                continue
            try:
                self._sent[need.folder] = [self.ray.put(pack(need, self._place_of(job, needs)))]
            except UserError as error:
                raise Failure(
                    f"The node {result.where!r} lacks data that the study reads. {error} What is "
                    "finished is kept."
                ) from None

    def close(self, interrupted: bool) -> None:
        """Delete what was sent, unless the study is to be resumed; disconnect, which ends tasks."""
        try:
            if not interrupted and self._sent:
                self._delete_sent()
        finally:
            self._stack.close()
            self.ray.shutdown()

    def _delete_sent(self) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

        task = self.ray.remote(num_cpus=0, max_retries=0)(delete_sent)
        alive = [node["NodeID"] for node in self.ray.nodes() if node["Alive"]]
        refs = [
            task.options(scheduling_strategy=On(node, soft=True)).remote(self._study)
            for node in alive
        ]
        self.ray.wait(refs, num_returns=len(refs), timeout=CONNECT_TIMEOUT)


def _cause_of_death(error: BaseException) -> str:
    name = type(error).__name__
    if "OutOfMemory" in name:
        return "its node ran out of memory"
    return "its node died" if "Node" in name else "its worker died"
