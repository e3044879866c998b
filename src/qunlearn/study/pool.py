"""Makes the networks of a pool: trained once, then made to unlearn by each audited method.

A shadow pair is a pool of one network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Protocol

import torch
from pydantic import Field

from qunlearn.audit.case import case_of
from qunlearn.audit.config import AuditConfig
from qunlearn.audit.pool import pool_for, settings_of_run
from qunlearn.audit.pool_folder import ORIGINAL, Pool, PoolConfig, pool_of
from qunlearn.audit.shadow import NUMBER, ShadowConfig, shadow_methods, shadow_of, shadow_seed
from qunlearn.errors import Failure, UserError
from qunlearn.quant import quantize
from qunlearn.runs.config import ModelConfig
from qunlearn.runs.data import moved, place_of
from qunlearn.runs.data_config import DataConfig
from qunlearn.runs.model_file import Header, spec_of
from qunlearn.runs.request import ForgetConfig
from qunlearn.runs.train import header_of, launch_run, optimizer_of, train_into, with_key
from qunlearn.store.files import make_folder, write_text
from qunlearn.store.place import named
from qunlearn.store.run import Run
from qunlearn.store.start import AnotherRun
from qunlearn.study.cells import Cell
from qunlearn.study.config import Settings
from qunlearn.study.workers import side_by_side
from qunlearn.training.config import ComputeConfig, OptimizerConfig
from qunlearn.training.devices import make_fabric
from qunlearn.training.progress import Progress
from qunlearn.training.train import check_fits


class PoolNetworkConfig(DataConfig, ModelConfig, OptimizerConfig, ComputeConfig):
    """What makes a network of a pool: the original's recipe, on its own samples."""

    panel: ClassVar[str] = "A network of a pool"

    pool: str = Field(..., description="The digest of the pool's plan.")
    number: int = Field(..., ge=0, description="Which network of the pool.")


class Job(Protocol):
    """Something that is made once, and resumed if it was interrupted."""

    @property
    def done(self) -> bool:
        """Whether it is there."""

    def make(self) -> None:
        """Make it."""


@dataclass(frozen=True)
class Training:
    """A network of the pool before unlearning.

    Attributes:
        find: Finds the pool: a worker process loads the data itself.
        config: Where the data is now, and how many threads.
        number: Which network.
        seed: The network's own seed.
    """

    find: Callable[[], Pool]
    config: AuditConfig
    number: int
    seed: int

    @property
    def pool(self) -> Pool:
        """Its pool."""
        return self.find()

    @property
    def done(self) -> bool:
        """Whether its run is there; raises if that belongs to another pool."""
        path = self.pool.trained(self.number)
        if not Run.is_complete(path):
            return False
        if Run.open(path).config.get("pool") != self.pool.plan.digest:
            raise UserError(
                f"The run {str(path)!r} belongs to another pool; name another folder with --pool."
            )
        return True

    def make(self) -> None:
        """Train it, or resume its training."""
        pool, path = self.pool, self.pool.trained(self.number)
        header = Header.read(pool.origin.model_path)
        training = {k: v for k, v in pool.plan.training.items() if k != "original"}
        identity = {"seed": self.seed, "pool": pool.plan.digest, "number": self.number}
        threads = {} if self.config.threads is None else {"threads": self.config.threads}
        place = place_of(pool.origin)
        if self.config.data is not None:
            place = moved(place, self.config.data)
        config = PoolNetworkConfig.parse({**place.to_dict(), **training, **threads, **identity})
        spec = replace(
            spec_of(header, self.config.model, str(pool.origin.path)), width=float(config.width)
        )
        split = with_key(pool.plan.split_of(self.number), path)
        model = quantize(spec.build(config.seed), header.quant)
        check_fits(model, split.data, split.train, config, config.devices)
        work = partial(
            train_into,
            model=model,
            split=split,
            header=header_of(spec, header.quant, split),
            optimizer=optimizer_of(config),
        )
        train = partial(launch_run, make_fabric(config), path, config, split)
        try:
            train(True, work, ("dataset", "data_dir"))
        except AnotherRun:  # left by other settings of the machine
            Run.discard(path)
            train(False, work, ("dataset", "data_dir"))


def make_pool(run: Path, config: PoolConfig) -> Pool:
    """Make what is missing of the pool that judges a run, which has forgotten."""
    audited = Run.open(run)
    pool, config, request = pool_for(audited, config)
    method, settings = settings_of_run(audited)
    train_pool(pool, config, request)
    unlearn_pool(pool, config, method, settings, config.workers)
    return pool


def make_shadow(run: Path, config: ShadowConfig) -> Pool:
    """Make what is missing of the shadow pair that `audit differ` learns from."""
    audited, case = Run.open(run), case_of(run, config)  # which checks what is asked beforehand
    pool = shadow_of(audited, case.split, config)
    with named(pool.folder):
        job = Training(lambda: pool, config, NUMBER, shadow_seed(pool))
        _make([job], 1, "training a shadow network")
    for method, settings in shadow_methods(audited, config).items():
        unlearn_pool(pool, config, method, settings)
    return pool


def train_pool(pool: Pool, config: PoolConfig, request: tuple[str, ...] = ()) -> None:
    """Train the networks of a pool that are missing."""
    find = partial(pool_of, pool.origin.path, config, request)
    jobs = [Training(find, config, number, number) for number in range(pool.plan.models)]
    with named(pool.folder):
        _make(jobs, config.workers, "training the pool")


def unlearn_pool(
    pool: Pool, config: AuditConfig, method: str, settings: Settings, workers: int = 1
) -> None:
    """Make the trained networks of a pool unlearn by a method, those that have not yet."""
    if method == ORIGINAL:
        return
    with named(pool.folder):
        cells = [_cell(pool, config, method, settings, n) for n in range(pool.plan.models)]
        for cell in cells:
            cell.check()
        _make(cells, workers, f"unlearning by {method}")


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
    return Cell(method, number, ForgetConfig.parse(values), out, digest)


def _make(jobs: Sequence[Job], workers: int, title: str) -> None:
    """Make what is missing, so many at a time; the one place that says how."""
    missing = [job for job in jobs if not job.done]
    with Progress(title, len(jobs), len(missing) > 0) as progress:
        progress.advance(len(jobs) - len(missing))
        for _, outcome in side_by_side(_made, missing, workers):
            if isinstance(outcome, Failure):
                raise Failure(f"{outcome} What the pool has so far is kept; try again.")
            progress.advance()


def _made(job: Job) -> None:
    config = getattr(job, "config", None)
    if (threads := getattr(config, "threads", None)) is not None:
        torch.set_num_threads(threads)
    job.make()
