"""The verdict on a model without a retrained one: the best that can be had."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from qunlearn.metrics.gap import half_width
from qunlearn.report.verdict import COARSE, HARM, PROOF, SMALLEST, Verdict


def alone(metrics: Mapping[str, Any], whole_class: bool = False) -> Verdict:
    """The answer without a retrained model: forgotten samples beside others it never saw.

    Args:
        metrics: A run's.
        whole_class: Nothing of the forgotten classes was kept, so a retrained model would get
            none of them right, seen or not.
    """
    now, then = metrics["parts"], metrics["before"]["parts"]
    other = "held_out" if "held_out" in now else "test"
    many, few = now[other]["samples"], now["forget"]["samples"]
    if whole_class:
        return _without_class(metrics)
    gaps = {
        key: (
            scale * (now["forget"][key] - now[other][key]),
            scale * (then["forget"][key] - then[other][key]),
            math.hypot(
                half_width(scale * now["forget"][key], few),
                half_width(scale * now[other][key], many),
            ),
        )
        for key, scale in (("accuracy", 1), ("confidence", 100))
    }
    coarse = max(slack for _, _, slack in gaps.values())
    cautions: tuple[str, ...] = (NO_REFERENCE, PROOF)
    if coarse > COARSE:
        cautions = (
            f"With {few:,} forgotten and {many:,} unseen samples, gaps of up to {coarse:.0f} "
            "points may be chance.",
            *cautions,
        )
    told = _parts(now, then, other), cautions
    harmed = _harm(metrics)
    if harmed:
        return Verdict("damaged", "Damaged", harmed, *told)
    surer = [key for key, (gap, _, slack) in gaps.items() if gap > max(SMALLEST, slack)]
    less = [key for key, (gap, _, slack) in gaps.items() if -gap > max(SMALLEST, slack)]
    if surer:
        key = surer[-1]
        said = {
            "accuracy": "it still gets more of the forgotten samples right than of unseen ones.",
            "confidence": "it is still surer of the forgotten samples than of unseen ones.",
        }[key]
        halved = gaps[key][0] < gaps[key][1] / 2
        return Verdict("no", "Only in part" if halved else "No", said, *told)
    if less:
        said = (
            "it does worse on the forgotten samples than on unseen ones, which can itself give "
            "them away."
        )
        return Verdict("too-much", "Too much", said, *told)
    if coarse > COARSE:
        said = "there are too few samples to see whether anything is left."
        return Verdict("unsure", "Cannot be told", said, *told)
    if not any(gap > max(SMALLEST, slack) for _, gap, slack in gaps.values()):
        said = "already before, the difference from unseen samples was within chance."
        return Verdict("unsure", "Cannot be told", said, *told)
    if any(gap > was / 2 for gap, was, slack in gaps.values() if was > max(SMALLEST, slack)):
        said = "most of the difference to unseen samples is still there, if within chance."
        return Verdict("unsure", "Cannot be told", said, *told)
    said = "as far as this can tell, it treats the forgotten samples like unseen ones."
    return Verdict("yes", "Yes", said, *told)


NO_REFERENCE = (
    "There is no retrained model to compare with; beside samples that the model never saw is the "
    "best available. Only a model retrained without the samples (--reference) shows what it should "
    "do with them."
)


def _parts(now: Mapping[str, Any], then: Mapping[str, Any], other: str) -> tuple[str, ...]:
    return tuple(
        f"{name.format(scale * now['forget'][key])} the forgotten samples and "
        f"{scale * now[other][key]:.1f} % {tail} unseen ones; before it was "
        f"{scale * then['forget'][key]:.1f} % and {scale * then[other][key]:.1f} %."
        for key, scale, name, tail in (
            ("accuracy", 1, "It gets {:.1f} % right of", "of"),
            ("confidence", 100, "It gives the true answer {:.1f} % on average on", "on"),
        )
    )


def _without_class(metrics: Mapping[str, Any]) -> Verdict:
    right, then = (m["parts"]["forget"]["accuracy"] for m in (metrics, metrics["before"]))
    slack = half_width(0, metrics["parts"]["forget"]["samples"])
    reasons: tuple[str, ...] = (
        f"It gets {right:.1f} % of the forgotten classes' samples right; before it was "
        f"{then:.1f} %. A model that never saw these classes gets none right.",
    )
    unseen = metrics["parts"].get("test_forgotten")
    if unseen:
        reasons += (f"Of their unseen samples it gets {unseen['accuracy']:.1f} % right.",)
    told = reasons, (NO_REFERENCE, PROOF)
    harmed = _harm(metrics)
    if harmed:
        return Verdict("damaged", "Damaged", harmed, *told)
    if right <= max(SMALLEST, min(slack, HARM)):
        said = "as far as this can tell, it no longer knows the classes that were to go."
        return Verdict("yes", "Yes", said, *told)
    word = "Only in part" if right < then / 2 else "No"
    return Verdict("no", word, "it still knows some of the classes that were to go.", *told)


def _harm(metrics: Mapping[str, Any]) -> str:
    """What was lost that should have been kept, against the model before; empty if little."""
    before = metrics["before"]
    scores = [s for s in ("RA", "TA") if s in metrics]  # neither without a test part
    fall, score = max(((before[s] - metrics[s], s) for s in scores), default=(0.0, ""))
    if fall <= 2 * HARM:
        return ""
    where = "the samples it should keep" if score == "RA" else "new samples"
    return f"it gets {fall:.1f} points fewer of {where} right than before."
