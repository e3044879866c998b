"""Opening the executor that the settings name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.registry import Registry
from qunlearn.study.executors.base import Executor, Opener
from qunlearn.study.executors.config import ExecutorConfig
from qunlearn.study.executors.local import local
from qunlearn.study.executors.ray import on_ray
from qunlearn.study.executors.slurm import on_slurm

executors: Registry[Opener] = Registry("executor")
"""Every executor, by the name that --executor has for it."""
executors.register("local")(local)
executors.register("ray")(on_ray)
executors.register("slurm")(on_slurm)


@contextmanager
def opened_executor(config: ExecutorConfig, home: Path) -> Iterator[Executor]:
    """The executor that the settings name, for the cells below `home`."""
    open_one = executors[config.executor]
    if config.on_cluster and config.workers > 1:
        raise UserError(
            f"--workers {config.workers} is for --executor local; with --executor "
            f"{config.executor} leave it out: --cpus-per-cell decides how many cells fit."
        )
    if not config.on_cluster and config.address is not None:
        raise UserError(
            f"--address {config.address} needs --executor ray or --executor slurm; add one of "
            "these, or leave --address out."
        )
    executor = open_one(config, home)
    try:
        yield executor
    except BaseException:
        executor.close(interrupted=True)
        raise
    executor.close(interrupted=False)
