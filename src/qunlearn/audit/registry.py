"""Audits by name: one file each, which registers itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from qunlearn.audit.case import Case
from qunlearn.audit.config import AuditConfig
from qunlearn.audit.row import Finding
from qunlearn.registry import Registry

S = TypeVar("S", bound=AuditConfig)
F = TypeVar("F", bound=Finding)


@dataclass(frozen=True)
class Work:
    """How much an audit has to compute, from which its time is estimated beforehand.

    Attributes:
        predicted: How many samples are predicted, over all networks.
        trained: How many samples are trained on.
        seconds: Whatever is not a network's doing.
    """

    predicted: int = 0
    trained: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Audit(Generic[S, F]):
    """A way of looking for what a network still remembers.

    Attributes:
        rank: Its place in `qunlearn audit all`: audits that tell most for their time come first.
        config: Its settings.
        finding: What it finds: a frozen dataclass, which `audit.json` holds.
        attack: Runs it; raises `NotApplicable` if it has no answer for this case.
        work: How much it will have to compute.
        summary: What it does, in one line.
        help: What it shows, in a paragraph, for the command line.
        examples: Flags to try it with.
    """

    rank: int
    config: type[S]
    finding: type[F]
    attack: Callable[[Case, S], F]
    work: Callable[[Case, S], Work]
    summary: str
    help: str
    examples: tuple[str, ...] = ()


audits: Registry[Audit[Any, Any]] = Registry("audit")
