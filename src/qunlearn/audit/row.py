"""What every audit ends with: figures with their intervals, and a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from qunlearn.errors import UserError
from qunlearn.metrics.bootstrap import Interval

Verdict = Literal["pass", "fail", "cannot be told"]

Detail = Mapping[str, str | int | float | tuple[str, ...]]
"""The values that a reason is about, by name."""

LEVEL = 0.05
"""The probability that an audit fails a network that is like a Retrain."""


@dataclass(frozen=True)
class Figure:
    """One measured value.

    Attributes:
        name: What was measured, in a few words.
        value: The value; None if it could not be measured.
        interval: Where the true value lies, at the confidence of the audit.
        retrain: The same of a Retrain, if there is one.
        unit: The unit; empty for shares and ranks.
    """

    name: str
    value: float | None
    interval: Interval | None = None
    retrain: float | None = None
    unit: str = ""


@dataclass(frozen=True)
class Judgement:
    """A verdict, and what decided it.

    Attributes:
        verdict: The verdict.
        reason: What decided it, or what is missing for one; see `AuditRow`.
        detail: The values that the reason is about.
    """

    verdict: Verdict
    reason: str = ""
    detail: Detail = field(default_factory=dict)


PASS = Judgement("pass")


@dataclass(frozen=True)
class AuditRow:
    """The outcome of one audit, as the table of all audits shows it.

    Attributes:
        attack: The audit's name.
        needs: What the attacker or the auditor had: "network", "network before", "Retrain", ...
        figures: The measured values; the first one is the result that a table shows.
        verdict: "pass" if no more leaks than from a Retrain, "fail" if more is, "cannot be told" if
            the data or the references do not allow either.
        reason: What decided the verdict, or what is missing for one: a short name, such as "no
            Retrain". `report/audits.py` says it in words; a name that it does not know is shown.
        level: The probability of a false "fail", over all figures together.
        seconds: How long the audit took.
        retrain_seconds: How long Retrain took, if that is known.
        detail: The values that the reason is about.
    """

    attack: str
    needs: tuple[str, ...]
    figures: tuple[Figure, ...]
    verdict: Verdict
    reason: str = ""
    level: float = LEVEL
    seconds: float = 0.0
    retrain_seconds: float | None = None
    detail: Detail = field(default_factory=dict)

    @property
    def share(self) -> float | None:
        """The audit's time in percent of Retrain's.

        >>> AuditRow("bits", (), (), "pass", seconds=3.0, retrain_seconds=60.0).share
        5.0
        """
        return 100 * self.seconds / self.retrain_seconds if self.retrain_seconds else None


class Finding(Protocol):
    """What an audit found: a frozen dataclass that `audit.json` holds."""

    def row(self) -> AuditRow:
        """The outcome, without its time."""


class NotApplicable(UserError):
    """The audit has no answer for this network or this request; others may."""
