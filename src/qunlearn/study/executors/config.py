"""The settings that say where the cells of a study are made."""

from __future__ import annotations

import os
from typing import ClassVar

from pydantic import Field

from qunlearn.training.config import Config


class ExecutorConfig(Config):
    """Which executor makes the cells, and what each of them gets."""

    panel: ClassVar[str] = "Where cells are made"

    workers: int = Field(1, ge=1, description="How many cells to make at a time on this machine.")
    executor: str = Field(
        "local",
        description="local (processes here), ray (a Ray cluster) or slurm.",
        exclude=True,
    )
    address: str | None = Field(
        None,
        description="Of the cluster. ray: auto (the default), HOST:PORT or ray://HOST:PORT. slurm: "
        "a partition, or local, which starts the jobs on this machine.",
        exclude=True,
    )
    cpus_per_cell: float = Field(
        1,
        gt=0,
        le=1024,
        description="Processors that a cell gets on a cluster; also its threads, unless --threads "
        "says otherwise.",
        exclude=True,
    )
    gpus_per_cell: float = Field(
        0, ge=0, le=64, description="GPUs that a cell gets on a cluster.", exclude=True
    )

    @property
    def on_cluster(self) -> bool:
        """Whether cells are made on other machines than this one."""
        return self.executor != "local"

    def threads_of_cell(self, threads: int | None) -> int | None:
        """Threads of a cell, unless they are set; None for all cores.

        >>> ExecutorConfig(executor="ray", cpus_per_cell=4).threads_of_cell(None)
        4
        >>> ExecutorConfig(executor="ray", cpus_per_cell=4).threads_of_cell(2)
        2
        """
        if threads is not None:
            return threads
        if self.on_cluster:
            return max(1, int(self.cpus_per_cell))
        return max(1, (os.cpu_count() or 1) // self.workers) if self.workers > 1 else None
