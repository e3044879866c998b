"""What `run.json` holds: how, when and on what machine a run was made."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from qunlearn.errors import UserError


@dataclass(frozen=True)
class Machine:
    """The machine that timings were measured on."""

    system: str = ""
    processor: str = ""
    cores: int | None = None
    threads: int = 0
    workers: int = 1


@dataclass(frozen=True)
class HeldOutCheck:
    """What the held-out part of an adopted network looks like; see `metrics.exposure`."""

    verdict: str
    samples: int
    reason: str | None = None


@dataclass(frozen=True)
class DeclaredCheck:
    """What was checked about a Retrain that was trained elsewhere.

    Attributes:
        verdicts: What each part that it must not have seen looks like; see `metrics.exposure`.
        same_bits: Whether it has the bits of the run that it is the Retrain of.
    """

    verdicts: Mapping[str, str]
    same_bits: bool


@dataclass(frozen=True)
class RunInfo:
    """The provenance of a run: the content of `run.json`.

    Attributes:
        seconds: Duration of each stage.
        method: The unlearning method; None for a network that has forgotten nothing.
        revision: The method's revision.
        origin: The digest of the weights before forgetting.
        weights_of: For a run that only retired samples: the digest of the run whose weights it
            has. The other provenance is that run's.
        held_out_check: For an adopted network: whether its held-out samples look unseen.
        declared: For a Retrain that was trained elsewhere: what was checked about it.
        made_in: "Python" if the run was not made by a command.
        begun: Start time, in ISO 8601.
        finished: End time, in ISO 8601.
        versions: Versions of all software that can change a result.
        machine: The machine that the timings were measured on.
        model_sha256: The digest of the weights.
        format: The format of the run folder.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    method: str | None = None
    revision: int = 1
    origin: str | None = None
    weights_of: str | None = None
    held_out_check: HeldOutCheck | str | None = None
    declared: DeclaredCheck | str | None = None
    made_in: str | None = None
    begun: str | None = None
    finished: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Machine = field(default_factory=Machine)
    model_sha256: str = ""
    format: int = 1

    def took(self, stage: str) -> float:
        """The seconds that a stage took."""
        if stage not in self.seconds:
            raise UserError(
                f"run.json has no time of {stage!r}; restore it from a copy, or make the run again."
            )
        return self.seconds[stage]


def versions() -> dict[str, str]:
    """Versions of all software that can change a result."""
    names = ("qunlearn", "torch", "numpy", "lightning-fabric", "safetensors", "scikit-learn")
    return {"python": platform.python_version()} | {name: _version(name) for name in names}


@cache
def _version(package: str) -> str:
    """A package's version; read once, because that takes milliseconds."""
    from importlib.metadata import version

    return version(package)


def machine() -> Machine:
    """The current machine."""
    import torch

    return Machine(
        platform.system(), platform.machine(), os.cpu_count(), torch.get_num_threads(), _workers
    )


_workers = 1


def made_beside(workers: int) -> None:
    """Record the number of concurrent workers, which slow each other down."""
    global _workers
    _workers = workers
