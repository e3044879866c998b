"""The one verdict on a run that has forgotten: the command line and the page both print it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from qunlearn.metrics.gap import half_width
from qunlearn.metrics.membership import weakest_attack
from qunlearn.parts import part_name
from qunlearn.report.alone import alone
from qunlearn.report.beside import Beside, beside_retrain
from qunlearn.report.target import Target
from qunlearn.report.verdict import HARM, Verdict

GENTLER = "A smaller learning rate forgets less: try half of it (--set lr=...), or fewer epochs."


def verdict_of(metrics: Mapping[str, Any]) -> Verdict:
    """The answer, from a run's figures: by Retrain if it is there, else by the method's target.

    Args:
        metrics: A run's figures, with `before`; with `reference` if they were compared.
    """
    target = Target.of(metrics)
    if "reference" in metrics:
        verdict = _compared(metrics)
    else:
        verdict = alone(metrics, whole_class=metrics.get("whole_classes", False))
        verdict = target.judge(verdict) if target else verdict
    if target:
        verdict = replace(verdict, met=target.met, reasons=(str(target), *verdict.reasons))
    if verdict.level == "too-much" and verdict.met:
        verdict = replace(verdict, reasons=(*verdict.reasons, GENTLER))
    if back := resurfaced(metrics):
        verdict = replace(verdict, met=False, reasons=(*map(str, back), *verdict.reasons))
        if verdict.level in ("yes", "mostly", "unsure"):
            said = "the model knows samples again that an earlier request made it forget."
            verdict = replace(verdict, level="no", word="Not cleanly", headline=said)
    return verdict


def measured_again(
    stored: Mapping[str, Any], measured: Mapping[str, Any], *, all_parts: bool = True
) -> dict[str, Any] | None:
    """A run's figures with those that were measured now, to judge it by; None if that cannot be.

    Args:
        stored: The run's figures as it was made.
        measured: What was measured now; samples that were erased since are missing.
        all_parts: Whether the stored figures may stand for these.
    """
    if "before" not in stored or not (all_parts or "forget" in measured["parts"]):
        return None
    return {**stored, **measured, "parts": {**stored["parts"], **measured["parts"]}}


@dataclass(frozen=True)
class Resurfaced:
    """Samples of an earlier request that a later one has brought back.

    Attributes:
        part: Their part of the split.
        before: The mean confidence in the truth before the last request, in percent.
        now: The same now.
    """

    part: str
    before: float
    now: float

    def __str__(self) -> str:
        return (
            f"Came back: on the samples {part_name(self.part)}, the mean confidence in the true "
            f"label rose from {self.before:.1f} % to {self.now:.1f} % by the last request. "
            "Forgetting both requests at once, from the run before the earlier one, avoids it."
        )


def resurfaced(metrics: Mapping[str, Any]) -> list[Resurfaced]:
    """The earlier requests whose samples came back, beyond chance and what unseen ones gained."""
    now, then = metrics["parts"], metrics["before"]["parts"]
    other = "held_out" if "held_out" in now else "test"
    gained = max(0.0, 100 * (now[other]["confidence"] - then[other]["confidence"]))
    found = []
    for part in now:
        if not part.startswith("forget_") or part not in then:
            continue
        sure = Resurfaced(part, 100 * then[part]["confidence"], 100 * now[part]["confidence"])
        chance = half_width(sure.now, now[part]["samples"])
        if sure.now - sure.before - gained > max(HARM, chance):
            found.append(sure)
    return found


def _compared(metrics: Mapping[str, Any]) -> Verdict:
    verdict = beside_retrain(
        Beside(
            after=metrics,
            before=metrics["before"],
            retrain=metrics["reference"],
            samples={part: row["samples"] for part, row in metrics["parts"].items()},
            gap=metrics["AG"],
            attack=weakest_attack([metrics, metrics["reference"]]),
        )
    )
    if "declared" not in metrics:
        return verdict
    return replace(verdict, cautions=(metrics["declared"]["sentence"], *verdict.cautions))
