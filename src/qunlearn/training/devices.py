"""Lightning Fabric, made from the settings: devices, precision and strategy are not other code."""

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

# Its notes on ranks and precision would go between our lines; said here, child processes obey too.
for name in ("lightning_fabric", "lightning_fabric.utilities.distributed"):
    logging.getLogger(name).setLevel(logging.ERROR)

# About convolutions of one channel, whose two layouts are the same memory.
warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")

ACCELERATORS = ("auto", "cpu", "cuda", "mps")


class Processes(DDPStrategy):
    """Several processes. Those of one machine meet in a file and talk over its loopback interface.

    By default torch listens on every interface, and takes orders from whoever connects.
    """

    meeting = ""
    """The file, if all processes are started here; others' launchers bring their own address."""

    def __init__(self) -> None:
        super().__init__(start_method="spawn")

    @property
    def started_here(self) -> bool:
        """Whether this process starts the others, and neither torchrun nor a cluster does."""
        environment = self.cluster_environment
        return (
            isinstance(environment, LightningEnvironment)
            and not environment.creates_processes_externally
        )

    def _setup_distributed(self) -> None:
        if self.meeting:
            loopback = next((n for _, n in socket.if_nameindex() if n in ("lo", "lo0")), None)
            if loopback:
                os.environ |= {"GLOO_SOCKET_IFNAME": loopback, "NCCL_SOCKET_IFNAME": loopback}
            self._set_world_ranks()
            torch.distributed.init_process_group(
                self._get_process_group_backend(),
                init_method=f"file://{self.meeting}",
                rank=self.global_rank,
                world_size=self.world_size,
                timeout=self._timeout,
                device_id=None if self.root_device.type == "cpu" else self.root_device,
            )
        super()._setup_distributed()  # which leaves processes alone that are connected


class Machine(Fabric):
    """A Fabric that also knows whether to compile the quantizers: auto, on or off."""

    compile = "auto"

    def launch(self, *args: Any, **kwargs: Any) -> Any:
        """Call a function in each of the processes; none outlives this call."""
        strategy = self.strategy
        if not (isinstance(strategy, Processes) and strategy.started_here):
            return super().launch(*args, **kwargs)
        with tempfile.TemporaryDirectory(prefix="qunlearn-") as folder, safe_children():
            strategy.meeting = str(Path(folder, "meeting"))
            return super().launch(*args, **kwargs)


def make_fabric(config: ComputeConfig) -> Machine:
    """A Fabric for these settings, or one sentence about what the machine lacks."""
    if config.accelerator not in ACCELERATORS:
        raise unknown("accelerator", config.accelerator, ACCELERATORS)
    if config.threads:
        torch.set_num_threads(config.threads)
    accelerator = config.accelerator
    if accelerator == "auto":
        # mps has no deterministic scatter; it is there for those who ask for it.
        accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    available = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if not available[accelerator]:
        raise UserError(
            f"The accelerator {accelerator!r} is not on this machine; use --accelerator cpu."
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
"""How many input values (images times their size) a run must read to count as long."""


NOTICED = 3.0
"""Seconds of waiting for a compiler that somebody would like to know the reason of."""


def compiles(fabric: Fabric, values: float) -> bool:
    """Whether the quantizers are to be compiled for a run that reads so many input values.

    For a processor that takes no time to speak of; for other devices long runs alone pay for it.
    """
    wanted = getattr(fabric, "compile", "auto")
    short = wanted == "auto" and values < LARGE
    if wanted == "off" or (short and fabric.device.type != "cpu"):
        return False
    started = time.monotonic()
    reason = why_not()
    waited = time.monotonic() - started > NOTICED
    if reason and (waited or not short) and fabric.is_global_zero:
        warnings.warn(
            f"The quantizers are not compiled, which costs time but changes nothing else: {reason}",
            stacklevel=2,
        )
    return reason is None


def check_compiler(compiled: bool) -> None:
    """Raise if a run was begun with compiled quantizers and there is no compiler to go on with."""
    reason = why_not() if compiled else None
    if reason:
        raise UserError(
            f"The run was begun with compiled quantizers, which cannot be had now: {reason} Go on "
            "where it was begun, or begin anew with --compile off."
        )


def leave_together(fabric: Fabric) -> None:
    """Wait for the other processes, then close what connects them.

    A process that ends while its connections are open may be aborted by their threads.
    """
    if fabric.world_size > 1:
        fabric.barrier()
        torch.distributed.destroy_process_group()
