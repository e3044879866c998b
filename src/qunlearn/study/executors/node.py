"""What a machine of a cluster does with a job: check itself, find what it needs, make the job."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch

from qunlearn.errors import Failure, UserError
from qunlearn.runs.data_config import DataConfig
from qunlearn.store.info import made_beside
from qunlearn.store.lock import Locked
from qunlearn.store.parcel import Files, delete_private, pack_run, unpack
from qunlearn.store.place import set_named
from qunlearn.store.private import private_folder
from qunlearn.store.run import Run
from qunlearn.study.executors.base import Job
from qunlearn.study.executors.needs import Need, find

LOCK_TIMEOUT = 600.0
"""Seconds that a node waits for the lock of a folder, such as that of a worker that is dying."""


@dataclass(frozen=True)
class Task:
    """A job that a node is to make, with what it has to know about the driver.

    Attributes:
        job: The job.
        folders: The folders that the user named; nothing below them is written through a link.
        versions: The software of the driver, which the node's must equal.
        jobs_at_a_time: How many jobs the node makes at a time.
        marker: A file in the study's folder; a node that sees it shares the folder. None: all do.
        needs: What the job reads.
        data: Where the data is on the driver, as the job's record says it.
        study: The name of the folder for what is sent to a node.
        working_folder: The driver's working folder, from which relative paths start.
    """

    job: Job
    folders: tuple[Path, ...]
    versions: Mapping[str, str]
    jobs_at_a_time: int = 1
    marker: Path | None = None
    needs: tuple[Need, ...] = ()
    data: DataConfig | None = None
    study: str = ""
    working_folder: Path = Path()


@dataclass(frozen=True)
class TaskResult:
    """What came of a task.

    Attributes:
        kind: Done; failed; refused, since the node has other software; or something is missing.
        where: The node.
        message: Why it failed or was refused.
        missing: What has to be sent.
        files: The complete run, if its folder is not shared.
    """

    kind: Literal["done", "failed", "refused", "missing"]
    where: str
    message: str = ""
    missing: tuple[Need, ...] = ()
    files: Files | None = field(default=None, repr=False)


def node_versions() -> dict[str, str]:
    """What must be the same on all machines of a study; the third number of Python may differ."""
    from importlib.metadata import version

    python = ".".join(platform.python_version_tuple()[:2])
    return {"qunlearn": version("qunlearn"), "torch": torch.__version__, "python": python}


def mismatch(where: str, here: Mapping[str, str], driver: Mapping[str, str]) -> str | None:
    """What is wrong with a node's software; None if it is the driver's.

    >>> mismatch("node-3", {"torch": "2.8"}, {"torch": "2.9"})
    "The node 'node-3' has torch 2.8, this machine has torch 2.9; install the same version on both."
    >>> mismatch("node-3", {"torch": "2.9"}, {"torch": "2.9"})
    """
    for name, wanted in driver.items():
        if here.get(name) != wanted:
            return (
                f"The node {where!r} has {name} {here.get(name)}, this machine has {name} "
                f"{wanted}; install the same version on both."
            )
    return None


def host_name() -> str:
    """The name of this machine."""
    return socket.gethostname()


def run_task(task: Task, fetch: Callable[[Need], Files | None]) -> TaskResult:
    """Carry out a task on this machine; `fetch` gets what was sent, None if it was not.

    A mistake in the request and a failure are answers; a bug is raised.
    """
    where = host_name()
    if problem := mismatch(where, node_versions(), task.versions):
        return TaskResult("refused", where, problem)
    if task.working_folder.is_dir():
        os.chdir(task.working_folder)
    set_named(task.folders)
    made_beside(task.jobs_at_a_time)
    shared = task.marker is None or task.marker.is_file()
    try:
        if task.marker is None:  # SLURM: what the driver sees, a job sees
            make_in_place(task.job, math.inf)  # a job of a killed driver may be making it
            return TaskResult("done", where)
        store = _store(task.study)
        paths, missing = _locate_all(task, store, fetch)
        if missing:
            return TaskResult("missing", where, missing=missing)
        same_paths = all(paths[need.field] == need.path for need in task.needs)
        if shared and same_paths:
            make_in_place(task.job)
            return TaskResult("done", where)
        path = task.job.path if shared else store / "cells" / _key(task)
        on_node = {name: place for name, place in paths.items() if place is not None}
        _wait_for_lock(lambda: task.job.make_at(path, on_node, task.data))
        if shared:
            return TaskResult("done", where)
        files = pack_run(path)
        Run.discard(path, finished=True)
        return TaskResult("done", where, files=files)
    except (Failure, UserError) as error:
        return TaskResult("failed", where, str(error))


def _store(study: str) -> Path:
    """The folder of this node for what a study sends to it."""
    folder = private_folder("nodes")
    if folder is None:
        raise Failure(
            f"The node {host_name()!r} has no cache folder that only you can write to; set "
            "XDG_CACHE_HOME there to one."
        )
    return folder / study


def delete_sent(study: str) -> None:
    """Delete what a study sent to this node."""
    delete_private(_store(study))


def _locate_all(
    task: Task, store: Path, fetch: Callable[[Need], Files | None]
) -> tuple[dict[str, Path | None], tuple[Need, ...]]:
    """Where each thing is on this node, by setting, and what has to be sent."""
    paths: dict[str, Path | None] = {}
    missing: list[Need] = []
    for need in task.needs:
        try:
            run = paths.get("run") or task.needs[0].path
            assert run is not None  # a job reads a run first
            paths[need.field] = _locate(need, run, store, fetch)
        except LookupError:
            missing.append(need)
            if need.field == "run":  # its manifest identifies the data: they may be here
                break
    return paths, tuple(missing)


def _locate(
    need: Need, run: Path, store: Path, fetch: Callable[[Need], Files | None]
) -> Path | None:
    """The path of something on this node (None: as the run's record says), or a `LookupError`."""
    try:
        return find(need, run, store)
    except LookupError:
        files = fetch(need)
        if files is None:
            raise
    unpack(store / need.folder, files)
    try:
        return find(need, run, store)
    except LookupError:  # to send it again would not help
        raise Failure(
            f"What the node {host_name()!r} was sent for {need.field} is not what the run was made "
            "with; check it on the machine that was given the command."
        ) from None


def make_in_place(job: Job, timeout: float = LOCK_TIMEOUT) -> None:
    """Make a job in its own folder, once no other process writes there."""
    _wait_for_lock(lambda: None if job.done else job.make(), timeout)


def _wait_for_lock(make: Callable[[], None], timeout: float = LOCK_TIMEOUT) -> None:
    """Make a job; while another process writes to its folder, wait for it."""
    until = time.monotonic() + timeout
    while True:
        try:
            return make()
        except Locked:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def _key(task: Task) -> str:
    """The name of a job's folder on this node; another one for other settings or another run."""
    config = task.job.config.model_dump_json()
    text = "\n".join([str(task.job.path), config, *(need.digest for need in task.needs)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]
