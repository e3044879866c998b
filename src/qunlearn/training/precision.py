"""Checks in a child process whether the machine supports a precision."""

from __future__ import annotations

from functools import cache
from typing import Literal

from qunlearn.children import run_python
from qunlearn.errors import UserError
from qunlearn.training.config import ComputeConfig

FABRIC_PRECISION: dict[str, Literal["32-true", "bf16-mixed", "16-mixed"]] = {
    "32": "32-true",
    "bf16": "bf16-mixed",
    "16": "16-mixed",
}

# One training step of a convolution. Some CPUs advertise instructions (AMX) that the system then
# traps: the process dies of an illegal instruction, so the test runs in a child process.
PROBE = """
import sys, torch
device, kind = sys.argv[1], getattr(torch, sys.argv[2])
net = torch.nn.Sequential(torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.BatchNorm2d(64),
                          torch.nn.Flatten(), torch.nn.Linear(64 * 256, 64)).to(device)
for layout in (torch.contiguous_format, torch.channels_last):
    images = torch.randn(32, 64, 16, 16, device=device).contiguous(memory_format=layout)
    net[0].to(memory_format=layout)
    with torch.autocast(device, dtype=kind):
        loss = net(images).float().square().mean()
    loss.backward()
assert all(p.grad.isfinite().all() for p in net.parameters())
"""


def check(config: ComputeConfig, device: str) -> None:
    """Raise unless this machine can train with the configured precision."""
    if config.precision == "32":
        return
    if config.precision == "16" and device == "cpu":
        raise UserError("Precision '16' is not supported on CPUs; use --precision bf16 or 32.")
    kind = {"bf16": "bfloat16", "16": "float16"}[config.precision]
    problem = probe(device, kind)
    if problem:
        raise UserError(
            f"This machine cannot train with precision {config.precision!r} on {device!r} "
            f"({problem}); use --precision 32."
        )


@cache
def probe(device: str, kind: str) -> str | None:
    """Train one step in a child process; returns the error message, or None."""
    done = run_python(PROBE, device, kind, timeout=300)
    if done.returncode == 0:
        return None
    if done.returncode < 0:
        import signal

        return f"a trial step died of {signal.Signals(-done.returncode).name}"
    return (done.stderr.strip().splitlines() or ["a trial step failed"])[-1]
