"""Makes the networks of a pool: trained once, then made to unlearn by each audited method.

A shadow pair is a pool of one network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from qunlearn.audit.case import case_of
from qunlearn.audit.config import AuditConfig
from qunlearn.audit.pool import pool_for, settings_of_run
from qunlearn.audit.pool_folder import ORIGINAL, Pool, PoolConfig, pool_of
from qunlearn.audit.shadow import NUMBER, ShadowConfig, shadow_methods, shadow_of, shadow_seed
from qunlearn.errors import Failure
from qunlearn.runs.request import ForgetConfig
from qunlearn.store.files import make_folder, write_text
from qunlearn.store.place import named
from qunlearn.store.run import Run
from qunlearn.study.cells import Cell, run_jobs
from qunlearn.study.config import MakePoolConfig, Settings
from qunlearn.study.executors.base import Executor, Job
from qunlearn.study.executors.config import ExecutorConfig
from qunlearn.study.executors.open import opened_executor
from qunlearn.study.pool_network import Training


def make_pool(run: Path, config: MakePoolConfig) -> Pool:
    """Make what is missing of the pool that judges a run, which has forgotten."""
    audited = Run.open(run)
    pool, settled, request = pool_for(audited, config)
    settled = settled.model_copy(update={"threads": config.threads_of_cell(config.threads)})
    method, settings = settings_of_run(audited)
    with named(pool.folder), opened_executor(config, pool.folder) as executor:
        train_pool(pool, settled, executor, request)
        unlearn_pool(pool, settled, executor, method, settings)
    return pool


def make_shadow(run: Path, config: ShadowConfig) -> Pool:
    """Make what is missing of the shadow pair that `audit differ` learns from, on this machine."""
    audited, case = Run.open(run), case_of(run, config)  # which checks what is asked beforehand
    pool = shadow_of(audited, case.split, config)
    with named(pool.folder), opened_executor(ExecutorConfig(), pool.folder) as executor:
        job = _training(pool, config, lambda origin, config: pool, NUMBER, shadow_seed(pool))
        _make([job], executor, "training a shadow network")
        for method, settings in shadow_methods(audited, config).items():
            unlearn_pool(pool, config, executor, method, settings)
    return pool


def train_pool(
    pool: Pool, config: PoolConfig, executor: Executor, request: tuple[str, ...] = ()
) -> None:
    """Train the networks of a pool that are missing."""
    find = partial(pool_of, request=request)
    jobs = [_training(pool, config, find, number, number) for number in range(pool.plan.models)]
    _make(jobs, executor, "training the pool")


def unlearn_pool(
    pool: Pool, config: AuditConfig, executor: Executor, method: str, settings: Settings
) -> None:
    """Make the trained networks of a pool unlearn by a method, those that have not yet."""
    if method == ORIGINAL:
        return
    cells = [_cell(pool, config, method, settings, n) for n in range(pool.plan.models)]
    _make(cells, executor, f"unlearning by {method}")


def _training(
    pool: Pool, config: AuditConfig, find: Callable[[Path, Any], Pool], number: int, seed: int
) -> Training:
    """The training of a network of the pool."""
    path, digest = pool.trained(number), pool.plan.digest
    return Training(find, pool.origin.path, config, digest, number, seed, path)


def _cell(
    pool: Pool, config: AuditConfig, method: str, settings: Mapping[str, object], number: int
) -> Cell:
    """A network that unlearns, as the cell of a comparison would."""
    names = sorted(pool.plan.ids(number))
    path = pool.ids(number)
    make_folder(path.parent)
    write_text(path, "\n".join(["id", *names]) + "\n")
    values: dict[str, object] = {
        "run": pool.trained(number),
        "ids": path,
        "method": method,
        "settings": {**settings, "seed": number},
        "skip_probe": True,
    }
    if config.threads is not None:
        values["threads"] = config.threads
    for name in ("model", "data"):
        if getattr(config, name) is not None:
            values[name] = getattr(config, name)
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
    out = pool.unlearned(method, settings, number)
    return Cell(method, number, ForgetConfig.parse(values), out, digest, pool.origin.path)


def _make(jobs: Sequence[Job], executor: Executor, title: str) -> None:
    """Make what is missing."""
    failures = [each for each in run_jobs(jobs, executor, title) if isinstance(each, Failure)]
    if failures:
        raise Failure(
            f"{len(failures)} of {len(jobs)} networks were not made; {failures[0]} What the pool "
            "has so far is kept; try again."
        )
