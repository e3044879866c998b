"""Lightning Fabric from the settings: devices, nodes, precision and strategy."""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from torch.multiprocessing.spawn import ProcessExitedException

from qunlearn.children import at_a_time, safe_children
from qunlearn.errors import Failure, UserError, unknown
from qunlearn.quant import why_not
from qunlearn.training import precision
from qunlearn.training.config import ComputeConfig
from qunlearn.training.group import COLLECTIVE_TIMEOUT, group, is_disconnection
from qunlearn.training.launcher import Launched, launcher

C = TypeVar("C", bound=ComputeConfig)

# Silences its messages on ranks and precision; at module level, so that child processes do too.
for name in ("lightning_fabric", "lightning_fabric.utilities.distributed"):
    logging.getLogger(name).setLevel(logging.ERROR)

# Harmless for convolutions of one channel, whose two layouts are the same memory.
warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
# Fabric's own call, on which a user can do nothing.
warnings.filterwarnings("ignore", message="torch.distributed.nn.functional")

ACCELERATORS = ("auto", "cpu", "cuda", "mps")


class Processes(DDPStrategy):
    """Data parallelism; processes of one machine connect through a file and the loopback interface.

    By default torch listens on every interface and accepts any connection.
    """

    rendezvous = ""
    """Path of the rendezvous file; empty under an external launcher, which has its own address."""

    def __init__(self) -> None:
        super().__init__(start_method="spawn", timeout=COLLECTIVE_TIMEOUT)

    def _configure_launcher(self) -> None:
        if self.started_here:
            super()._configure_launcher()

    @property
    def started_here(self) -> bool:
        """Whether this process starts the others, rather than torchrun or a cluster."""
        environment = self.cluster_environment
        return (
            isinstance(environment, LightningEnvironment)
            and not environment.creates_processes_externally
        )

    def _setup_distributed(self) -> None:
        if self.rendezvous:
            loopback = next((n for _, n in socket.if_nameindex() if n in ("lo", "lo0")), None)
            if loopback:
                os.environ |= {"GLOO_SOCKET_IFNAME": loopback, "NCCL_SOCKET_IFNAME": loopback}
            self._set_world_ranks()
            torch.distributed.init_process_group(
                self._get_process_group_backend(),
                init_method=f"file://{self.rendezvous}",
                rank=self.global_rank,
                world_size=self.world_size,
                timeout=self._timeout,
                device_id=None if self.root_device.type == "cpu" else self.root_device,
            )
        super()._setup_distributed()  # does nothing if the process group exists


class Machine(Fabric):
    """A Fabric that knows the settings it was made from."""

    config = ComputeConfig()

    def launch(self, *args: Any, **kwargs: Any) -> Any:
        """Call a function in each process: of this machine, or of a launcher.

        Processes that are started here end with this call.
        """
        joined = group()
        if joined is not None and joined.launcher.rank == 0:
            (work,) = args
            return joined.lead(self.config, work, partial(super().launch, work, **kwargs))
        strategy = self.strategy
        if not (isinstance(strategy, Processes) and strategy.started_here):
            return super().launch(*args, **kwargs)
        (work,) = args
        with tempfile.TemporaryDirectory(prefix="qunlearn-") as folder, safe_children():
            strategy.rendezvous = str(Path(folder, "rendezvous"))
            work = partial(_with_threads, work=work, threads=self.config.threads)
            outcome = _lost_as_failure(lambda: super(Machine, self).launch(work, **kwargs))
        if isinstance(outcome, (UserError, Failure)):
            raise outcome
        return outcome


def _with_threads(fabric: Fabric, *, work: Callable[[Fabric], Any], threads: int | None) -> Any:
    """What a process that is started here does; what it fails with is said by its parent."""
    use_threads(threads)
    try:
        return work(fabric)
    except (UserError, Failure) as error:
        return error
    except RuntimeError as error:
        if not is_disconnection(error):
            raise
        reason = str(error).splitlines()[0]
        return Failure(
            f"One of the {fabric.world_size} processes has ended ({reason}); the run is not "
            "complete: resume it with --resume."
        )


def _lost_as_failure(launch: Callable[[], Any]) -> Any:
    try:
        return launch()
    except ProcessExitedException as error:
        reason = str(error).splitlines()[0]
        raise Failure(
            f"A process has ended ({reason}); the run is not complete: resume it with --resume."
        ) from None


def follow_task(config: ComputeConfig, work: Callable[[Fabric], Any]) -> None:
    """What a process that is led by another does with a task."""
    make_fabric(config).launch(work)


def on_nodes(config: C) -> C:
    """The settings with as many processes and nodes as the launcher started."""
    process = launcher()
    joined = group()
    if process is None or (joined is None and process.name != "torchrun"):
        if (config.nodes or 1) > 1:
            raise UserError(
                f"nodes = {config.nodes} needs processes that know where to meet; start the "
                f"command on each node with `torchrun --nnodes {config.nodes} --rdzv-backend c10d "
                "--rdzv-endpoint HOST:PORT -m qunlearn ...`, or with srun."
            )
        return config
    for name, started in (("devices", process.per_node), ("nodes", process.nodes)):
        value = getattr(config, name)
        if name in config.model_fields_set and value not in (None, started):
            raise UserError(
                f"{name} = {value}, and {process.name} has started {process.world} processes, "
                f"{process.per_node} on each of {process.nodes} nodes; leave --{name} out."
            )
    if process.world == 1:
        return config
    if getattr(config, "workers", 1) > 1:
        raise UserError(
            f"workers = {getattr(config, 'workers', 1)}, and the {process.world} processes of "
            f"{process.name} work on one cell together; leave --workers out."
        )
    nodes = process.nodes if process.nodes > 1 else None
    return config.model_copy(update={"devices": process.per_node, "nodes": nodes})


def use_threads(threads: int | None) -> None:
    """Compute with this number of processor threads; None leaves it as it is."""
    if threads is not None:
        torch.set_num_threads(threads)


def make_fabric(config: ComputeConfig) -> Machine:
    """Create a Fabric for these settings; unsupported ones are a `UserError`."""
    if config.accelerator not in ACCELERATORS:
        raise unknown("accelerator", config.accelerator, ACCELERATORS)
    use_threads(config.threads)
    accelerator = config.accelerator
    if accelerator == "auto":
        # mps has no deterministic scatter, so it must be requested explicitly.
        accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    available = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if not available[accelerator]:
        raise UserError(
            f"The accelerator {accelerator!r} is not available here; use --accelerator cpu."
        )
    if accelerator == "cpu" and config.devices > at_a_time():  # a file may ask for thousands
        raise UserError(
            f"This machine runs at most {at_a_time()} processes at a time, not {config.devices}; "
            "lower --devices."
        )
    if accelerator == "cuda" and config.devices > torch.cuda.device_count():
        raise UserError(
            f"There are {torch.cuda.device_count()} cuda devices, not {config.devices}; "
            "lower --devices."
        )
    precision.check(config, accelerator)
    joined = group()
    # Named, not detected: a process of a SLURM job may well be meant to work alone.
    environment: ClusterEnvironment = (
        LightningEnvironment() if joined is None else Launched(joined.launcher)
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning_fabric")
        fabric = Machine(
            accelerator=accelerator,
            devices=config.devices,
            num_nodes=config.nodes or 1,
            precision=precision.FABRIC_PRECISION[config.precision],
            strategy=Processes() if config.processes > 1 else "auto",
            plugins=[environment],
        )
    fabric.config = config
    return fabric


LARGE = 3e7
"""Number of input values (images times their size) from which a run counts as long."""


NOTICED = 3.0
"""Seconds of waiting for the compiler after which a failure is reported."""


def compiles(fabric: Fabric, values: float) -> bool:
    """Whether to compile the quantizers for a run that reads this many input values.

    Compiling for a CPU takes little time; for other devices it pays only in long runs.
    """
    mode = fabric.config.compile if isinstance(fabric, Machine) else "auto"
    short = mode == "auto" and values < LARGE
    if mode == "off" or (short and fabric.device.type != "cpu"):
        return False
    started = time.monotonic()
    reason = why_not()
    waited = time.monotonic() - started > NOTICED
    if reason and (waited or not short) and fabric.is_global_zero:
        warnings.warn(
            f"The quantizers are not compiled; training is slower, with the same results: {reason}",
            stacklevel=2,
        )
    return reason is None


def syncs_batchnorm(fabric: Fabric) -> bool:
    """Whether processes share BatchNorm's batch statistics."""
    return isinstance(fabric, Machine) and bool(fabric.config.sync_batchnorm)


def check_compiler(compiled: bool) -> None:
    """Raise if a run was started with compiled quantizers and there is no compiler to resume it."""
    reason = why_not() if compiled else None
    if reason:
        raise UserError(
            f"The run was started with compiled quantizers, which are not available now: {reason} "
            "Resume it where it was started, or start a new run with --compile off."
        )


def leave_together(fabric: Fabric) -> None:
    """Wait for the other processes, then close what connects them, unless a launcher keeps them.

    A process that ends while its connections are open may be aborted by their threads.
    """
    if fabric.world_size > 1:
        fabric.barrier()
        if group() is None:
            torch.distributed.destroy_process_group()
