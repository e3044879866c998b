"""Lightning Fabric from the settings: devices, precision and strategy."""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy

from qunlearn.children import at_a_time, safe_children
from qunlearn.errors import UserError, unknown
from qunlearn.quant import why_not
from qunlearn.training import precision
from qunlearn.training.config import ComputeConfig

# Silences its messages on ranks and precision; at module level, so that child processes do too.
for name in ("lightning_fabric", "lightning_fabric.utilities.distributed"):
    logging.getLogger(name).setLevel(logging.ERROR)

# Harmless for convolutions of one channel, whose two layouts are the same memory.
warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")

ACCELERATORS = ("auto", "cpu", "cuda", "mps")


class Processes(DDPStrategy):
    """Data parallelism; processes of one machine connect through a file and the loopback interface.

    By default torch listens on every interface and accepts any connection.
    """

    rendezvous = ""
    """Path of the rendezvous file; empty under an external launcher, which has its own address."""

    def __init__(self) -> None:
        super().__init__(start_method="spawn")

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
    """A Fabric with the setting `compile` for the quantizers: auto, on or off."""

    compile = "auto"

    def launch(self, *args: Any, **kwargs: Any) -> Any:
        """Call a function in each process; all processes end with this call."""
        strategy = self.strategy
        if not (isinstance(strategy, Processes) and strategy.started_here):
            return super().launch(*args, **kwargs)
        with tempfile.TemporaryDirectory(prefix="qunlearn-") as folder, safe_children():
            strategy.rendezvous = str(Path(folder, "rendezvous"))
            return super().launch(*args, **kwargs)


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
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning_fabric")
        fabric = Machine(
            accelerator=accelerator,
            devices=config.devices,
            precision=precision.FABRIC_PRECISION[config.precision],
            strategy=Processes() if config.devices > 1 else "auto",
        )
    fabric.compile = config.compile
    return fabric


LARGE = 3e7
"""Number of input values (images times their size) from which a run counts as long."""


NOTICED = 3.0
"""Seconds of waiting for the compiler after which a failure is reported."""


def compiles(fabric: Fabric, values: float) -> bool:
    """Whether to compile the quantizers for a run that reads this many input values.

    Compiling for a CPU takes little time; for other devices it pays only in long runs.
    """
    mode = getattr(fabric, "compile", "auto")
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


def check_compiler(compiled: bool) -> None:
    """Raise if a run was started with compiled quantizers and there is no compiler to resume it."""
    reason = why_not() if compiled else None
    if reason:
        raise UserError(
            f"The run was started with compiled quantizers, which are not available now: {reason} "
            "Resume it where it was started, or start a new run with --compile off."
        )


def leave_together(fabric: Fabric) -> None:
    """Wait for the other processes, then close what connects them.

    A process that ends while its connections are open may be aborted by their threads.
    """
    if fabric.world_size > 1:
        fabric.barrier()
        torch.distributed.destroy_process_group()
