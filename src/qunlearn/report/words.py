"""Findings in words: the sentences that the command line, the page and Python share."""

from __future__ import annotations

from itertools import islice

from qunlearn.data import Outcome
from qunlearn.methods.calibration import CLOSE, Calibration
from qunlearn.parts import counted
from qunlearn.runs.metrics import Declared, Duplicates, RunMetrics

SHOWN = 5
"""How many duplicates are named."""


def findings_words(metrics: RunMetrics) -> list[str]:
    """What is known of a run beside its scores, a paragraph each."""
    words = [
        metrics.declared and declared_words(metrics.declared),
        metrics.request and request_words(metrics.request),
        metrics.calibration and calibration_words(metrics.calibration),
        metrics.duplicates and duplicates_words(metrics.duplicates),
    ]
    return [each for each in words if each]


def declared_words(declared: Declared) -> str:
    """What is known of a Retrain that was trained elsewhere."""
    return (
        f"The Retrain {declared.name!r} was declared, not made here: that it was trained without "
        f"the forgotten samples is its owner's word. {declared.checked}"
    )


def request_words(outcome: Outcome) -> str:
    """What was retired and skipped of a request."""
    sentences = [f"Samples forgotten: {outcome.forgotten:,}"]
    if retired := sum(outcome.retired.values()):
        parts = counted({part.replace("_", " "): n for part, n in outcome.retired.items()})
        sentences[0] += f", retired: {retired:,} ({parts}), which are no longer measured on"
    if not outcome.forgotten:
        sentences.append("None was trained on, so the weights are unchanged")
    if outcome.skipped:
        sentences.append(f"Ids skipped: {counted(outcome.skipped)}")
    return ". ".join(sentences) + "."


def duplicates_words(duplicates: Duplicates) -> str:
    """Which samples to forget are retained under other ids."""
    copies = duplicates.copies
    shown = [f"{one} as {copy}" for one, copy in islice(copies.items(), SHOWN)]
    some = ", ".join(shown) + (", ..." if len(copies) > SHOWN else "")
    return (
        f"Forgotten samples that are retained under other ids too: {len(copies):,} ({some}). The "
        "network still knows them; ask to forget the copies too."
    )


def calibration_words(found: Calibration) -> str:
    """Whether the target was reached, with the figures.

    >>> calibration_words(
    ...     Calibration("reached", 85.3, 86.0, 91.6, 1.1, 450, 5000, True, False, 5, 2, 1.05)
    ... )  # doctest: +NORMALIZE_WHITESPACE
    'Target reached. Mean confidence in the true label on the forgotten samples: 86.0 %, target
    85.3 ± 1.1 % (estimated from 5,000 held-out samples), before forgetting 91.6 %. Reached in epoch
    2 of 5; the other epochs restored the retained samples. Logits were rescaled by 1.05 to restore
    the original temperature; no prediction changes.'
    """
    words = [_state(found), _figures(found)]
    way = found.before - found.target
    if way <= 100 * CLOSE:
        words.append("There was little to forget.")
    else:
        if way <= found.chance:
            words.append("With so few samples the start was within chance of the target, too.")
        words.append(_course(found))
    if found.logit_scale > 1.02:
        words.append(
            f"Logits were rescaled by {found.logit_scale:.2f} to restore the original temperature; "
            "no prediction changes."
        )
    if not found.random and not found.class_wise:
        words.append("The request is no random share; held-out samples are the best model of it.")
    return " ".join(words)


def _state(found: Calibration) -> str:
    if found.state == "reached":
        return "Target reached."
    if found.state == "too far":
        return "Too far: the forgotten samples look less known than unseen ones."
    remedy = (
        f"leave {' and '.join(found.lowered)} out"
        if found.lowered
        else f"try --epochs {3 * found.epochs}"
    )
    return f"Target not reached within {_epochs(found.epochs)}; {remedy}."


def _figures(found: Calibration) -> str:
    target = (
        "target 0 % (nothing of these classes is retained)"
        if found.class_wise
        else f"target {found.target:.1f} ± {found.chance:.1f} % (estimated from {found.unseen:,} "
        "held-out samples)"
    )
    return (
        f"Mean confidence in the true label on the forgotten samples: {found.reached:.1f} %, "
        f"{target}, before forgetting {found.before:.1f} %."
    )


def _course(found: Calibration) -> str:
    """When the target was reached, and what followed."""
    above = found.reached - found.target
    if not found.reached_in_epoch:
        where = "above" if above > 0 else "below"
        return f"Stopped after {_epochs(found.epochs)}, {abs(above):.1f} points {where} the target."
    reached = f"Reached in epoch {found.reached_in_epoch} of {found.epochs}"
    if above > 100 * CLOSE:
        return f"{reached}, then lost again."
    if found.reached_in_epoch < found.epochs:
        return f"{reached}; the other epochs restored the retained samples."
    return f"{reached}."


def _epochs(count: int) -> str:
    return "1 epoch" if count == 1 else f"{count} epochs"
