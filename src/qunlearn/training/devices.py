"""Lightning Fabric, made from the settings: devices, precision and strategy are not other code."""

from __future__ import annotations

import logging
import warnings

import torch
from lightning_fabric import Fabric

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


class Machine(Fabric):
    """A Fabric that also knows whether to compile the quantizers: auto, on or off."""

    compile = "auto"


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
            strategy="ddp_spawn" if config.devices > 1 else "auto",
        )
    fabric.compile = config.compile
    return fabric


LARGE = 3e7
"""How many input values (images times their size) a run must read to count as long."""


def compiles(fabric: Fabric, values: float) -> bool:
    """Whether the quantizers are to be compiled for a run that reads so many input values.

    For a processor that takes no time to speak of; for other devices long runs alone pay for it.
    """
    wanted = getattr(fabric, "compile", "auto")
    short = wanted == "auto" and values < LARGE
    if wanted == "off" or (short and fabric.device.type != "cpu"):
        return False
    reason = why_not()
    if reason and not short and fabric.is_global_zero:
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
