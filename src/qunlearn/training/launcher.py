"""What started this process: torchrun, srun, or a person; and which of how many it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment

from qunlearn.errors import UserError

PORTS = 15_000
"""Where the ports of SLURM jobs begin; the last four digits of the job's number are added."""


@dataclass(frozen=True)
class Launcher:
    """A launcher that starts the same command several times, on one machine or on many.

    Attributes:
        name: `torchrun` or `srun`.
        rank: Number of this process; 0 leads, the others follow.
        world: Number of processes.
        local_rank: Number of this process on its node.
        per_node: Number of processes on each node.
        address: Host on which the processes meet, which is that of rank 0.
        port: Port there.
    """

    name: str
    rank: int
    world: int
    local_rank: int
    per_node: int
    address: str
    port: int

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.world // self.per_node


@cache
def launcher() -> Launcher | None:
    """The launcher of this process; None if it is the only one, or starts others itself."""
    return launched_by(os.environ)


def launched_by(environment: Mapping[str, str]) -> Launcher | None:
    """The launcher that these environment variables speak of.

    torchrun sets RANK and WORLD_SIZE. SLURM sets SLURM_STEP_NUM_TASKS for what srun starts; in a
    batch script, which runs once however many tasks were asked for, it is not set.

    >>> launched_by({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
    ...              "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}).nodes
    2
    >>> launched_by({"SLURM_NTASKS": "4"}) is None
    True
    """
    if "RANK" in environment and "WORLD_SIZE" in environment:
        _need_rendezvous(environment)
        return _checked(
            Launcher(
                "torchrun",
                rank=_number(environment, "RANK"),
                world=_number(environment, "WORLD_SIZE"),
                local_rank=_number(environment, "LOCAL_RANK", "0"),
                per_node=_number(environment, "LOCAL_WORLD_SIZE", "1"),
                address=environment["MASTER_ADDR"],
                port=_number(environment, "MASTER_PORT"),
            )
        )
    if _number(environment, "SLURM_STEP_NUM_TASKS", "1") > 1:
        world = _number(environment, "SLURM_STEP_NUM_TASKS")
        hosts = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_NODELIST", "")
        job = _number(environment, "SLURM_JOB_ID", "0")
        return _checked(
            Launcher(
                "srun",
                rank=_number(environment, "SLURM_PROCID"),
                world=world,
                local_rank=_number(environment, "SLURM_LOCALID", "0"),
                per_node=world // max(1, _number(environment, "SLURM_STEP_NUM_NODES", "1")),
                address=environment.get("MASTER_ADDR")
                or SLURMEnvironment.resolve_root_node_address(hosts)
                or "127.0.0.1",
                port=_number(environment, "MASTER_PORT", str(PORTS + job % 10_000)),
            )
        )
    return None


class Launched(ClusterEnvironment):
    """A launcher, as Fabric asks for it."""

    def __init__(self, launcher: Launcher) -> None:
        super().__init__()
        self.launcher = launcher

    @property
    def creates_processes_externally(self) -> bool:
        """Whether somebody else starts the processes."""
        return True

    @property
    def main_address(self) -> str:
        """Host on which the processes meet."""
        return self.launcher.address

    @property
    def main_port(self) -> int:
        """Port there."""
        return self.launcher.port

    @staticmethod
    def detect() -> bool:
        """Whether this process has a launcher."""
        return launcher() is not None

    def world_size(self) -> int:
        """Number of processes."""
        return self.launcher.world

    def set_world_size(self, size: int) -> None:
        """The launcher has decided that."""

    def global_rank(self) -> int:
        """Number of this process."""
        return self.launcher.rank

    def set_global_rank(self, rank: int) -> None:
        """The launcher has decided that."""

    def local_rank(self) -> int:
        """Number of this process on its node."""
        return self.launcher.local_rank

    def node_rank(self) -> int:
        """Number of this node."""
        return self.launcher.rank // self.launcher.per_node


def _need_rendezvous(environment: Mapping[str, str]) -> None:
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not environment.get(name)]
    if missing:
        raise UserError(
            f"RANK and WORLD_SIZE are set and {missing[0]} is not, so that the processes cannot "
            "meet; start them with torchrun or srun, or unset RANK."
        )


def _checked(launcher: Launcher) -> Launcher:
    if not (
        0 <= launcher.rank < launcher.world
        and 0 <= launcher.local_rank < launcher.per_node
        and launcher.world % launcher.per_node == 0
    ):
        raise UserError(
            f"{launcher.name} started process {launcher.rank} of {launcher.world}, number "
            f"{launcher.local_rank} of {launcher.per_node} on its node; start equally many "
            "processes on each node."
        )
    return launcher


def _number(environment: Mapping[str, str], name: str, usual: str | None = None) -> int:
    text = environment.get(name, usual)
    if text is None or not text.isascii() or not text.isdigit():
        problem = "is not set" if text is None else f"is {text!r}, which is no whole number"
        raise UserError(
            f"The environment variable {name} {problem}; start the processes with torchrun or srun."
        )
    return int(text)
