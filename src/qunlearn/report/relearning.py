"""Whether forgetting is deep, in words."""

from __future__ import annotations

from dataclasses import replace

from qunlearn.methods.calibration import Calibration
from qunlearn.methods.relearn import Relearning
from qunlearn.report.verdict import Verdict


def relearning_words(probe: Relearning) -> str:
    """What the relearning probe found.

    >>> print(relearning_words(Relearning(200, 0.05, 70.7, 74.8, 72.6, 69.6, 80.9, 3.5)))
    ... # doctest: +NORMALIZE_WHITESPACE
    Shallow: 200 steps of fine-tuning on retained samples bring forgotten ones back. Confidence in
    the true label on the forgotten samples: 70.7 % before, 74.8 % after; on unseen samples: 72.6 %
    before, 69.6 % after. Expected, from the change on unseen samples: 67.7 %; excess 7.1 points (up
    to 3.5 may be chance).
    """
    return (
        f"{relearning_lead(probe)} Confidence in the true label on the forgotten samples: "
        f"{probe.before:.1f} % before, {probe.after:.1f} % after; on unseen samples: "
        f"{probe.unseen_before:.1f} % before, {probe.unseen_after:.1f} % after. "
        f"{_excess_words(probe)}"
    )


def _excess_words(probe: Relearning) -> str:
    """How far the confidence after fine-tuning exceeds what was to be expected."""
    causes = "the change on unseen samples"
    if probe.target is not None:
        causes = f"their target and {causes}"
    expected = f"Expected, from {causes}: {probe.after - probe.returned:.1f} %"
    if probe.returned <= 0:
        return f"{expected}; no excess."
    return (
        f"{expected}; excess {probe.returned:.1f} points (up to {probe.allowed:.1f} may be chance)."
    )


def relearning_lead(probe: Relearning) -> str:
    """The same without figures."""
    steps = f"{probe.steps} steps of fine-tuning on retained samples"
    if probe.deep:
        return f"Deep: {steps} do not bring forgotten ones back."
    if probe.after > probe.before:
        return f"Shallow: {steps} bring forgotten ones back."
    return f"Shallow: {steps} cost forgotten ones less confidence than unseen ones."


PARTLY = 0.2
"""The share of what was forgotten that may come back, for forgetting to count as mostly deep."""


def judged_by_relearning(
    verdict: Verdict, probe: Relearning, target: Calibration | None, forgotten: float
) -> Verdict:
    """The verdict, with whether forgetting is deep.

    Args:
        verdict: By outputs alone.
        probe: What fine-tuning brought back.
        target: The target of a calibrated method; whoever chose a shallow one gets it.
        forgotten: By how many points forgetting lowered the confidence in the samples.
    """
    verdict = replace(verdict, reasons=(*verdict.reasons, relearning_words(probe)))
    if probe.deep or verdict.level not in ("yes", "mostly"):
        return verdict
    if probe.returned <= PARTLY * forgotten:
        partly = (
            "the model treats the forgotten samples like unseen ones; fine-tuning on retained "
            f"samples brings back {100 * probe.returned / forgotten:.0f} % of what was forgotten."
        )
        return replace(verdict, level="mostly", word="Mostly", headline=partly)
    headline = (
        "the model treats the forgotten samples like unseen ones, but fine-tuning on retained "
        "samples brings them back"
    )
    if target is not None and target.depth == "shallow" and target.depth_asked:
        chosen = f"{headline}, as was chosen by --depth shallow."
        return replace(verdict, level="mostly", word="On the surface", headline=chosen)
    if target is None or target.depth is None:
        remedy = "try --method calibrated"
    else:
        remedy = "allow more steps" if target.depth == "shallow" else "use --method retrain"
    return replace(
        verdict, level="no", word="On the surface", headline=f"{headline}; {remedy}.", met=False
    )
