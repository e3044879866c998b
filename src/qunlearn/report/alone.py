"""The verdict on a model without a retrained one: the best that can be had."""

from __future__ import annotations

import math

from qunlearn.metrics import PartScores, Scores
from qunlearn.metrics.gap import half_width
from qunlearn.report.verdict import COARSE, HARM, PROOF, SMALLEST, Verdict


def alone(metrics: Scores, before: Scores, whole_class: bool = False) -> Verdict:
    """The answer without a retrained model: forgotten samples beside others it never saw.

    Args:
        metrics: What is measured on the model that has forgotten.
        before: The same of the model before.
        whole_class: Nothing of the forgotten classes was kept, so a retrained model would get
            none of them right, seen or not.
    """
    if whole_class:
        return _without_class(metrics, before)
    part = "held_out" if "held_out" in metrics.parts else "test"
    (now, unseen), (then, unseen_then) = (
        (scores.parts["forget"], scores.parts[part]) for scores in (metrics, before)
    )
    many, few = unseen.samples, now.samples
    gaps = {
        key: (
            scale * (getattr(now, key) - getattr(unseen, key)),
            scale * (getattr(then, key) - getattr(unseen_then, key)),
            math.hypot(
                half_width(scale * getattr(now, key), few),
                half_width(scale * getattr(unseen, key), many),
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
    told = _parts(now, unseen, then, unseen_then), cautions
    harmed = _harm(metrics, before)
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
        return Verdict("unsure", "Inconclusive", said, *told)
    if not any(gap > max(SMALLEST, slack) for _, gap, slack in gaps.values()):
        said = "already before, the difference from unseen samples was within chance."
        return Verdict("unsure", "Inconclusive", said, *told)
    if any(gap > was / 2 for gap, was, slack in gaps.values() if was > max(SMALLEST, slack)):
        said = "most of the difference to unseen samples is still there, if within chance."
        return Verdict("unsure", "Inconclusive", said, *told)
    said = "as far as this can tell, it treats the forgotten samples like unseen ones."
    return Verdict("yes", "Yes", said, *told)


NO_REFERENCE = (
    "There is no retrained model to compare with; beside samples that the model never saw is the "
    "best available. Only a model retrained without the samples (--reference) shows what it should "
    "do with them."
)


def _parts(
    now: PartScores, unseen: PartScores, then: PartScores, unseen_then: PartScores
) -> tuple[str, ...]:
    return tuple(
        f"{name}: forgotten samples {scale * getattr(now, key):.1f} %, unseen ones "
        f"{scale * getattr(unseen, key):.1f} % (before {scale * getattr(then, key):.1f} % and "
        f"{scale * getattr(unseen_then, key):.1f} %)."
        for key, scale, name in (
            ("accuracy", 1, "Accuracy"),
            ("confidence", 100, "Mean confidence in the true label"),
        )
    )


def _without_class(metrics: Scores, before: Scores) -> Verdict:
    right, then = metrics.FA, before.FA
    slack = half_width(0, metrics.parts["forget"].samples)
    reasons: tuple[str, ...] = (
        f"It gets {right:.1f} % of the forgotten classes' samples right; before it was "
        f"{then:.1f} %. A model that never saw these classes gets none right.",
    )
    unseen = metrics.parts.get("test_forgotten")
    if unseen:
        reasons += (f"Of their unseen samples it gets {unseen.accuracy:.1f} % right.",)
    told = reasons, (NO_REFERENCE, PROOF)
    harmed = _harm(metrics, before)
    if harmed:
        return Verdict("damaged", "Damaged", harmed, *told)
    if right <= max(SMALLEST, min(slack, HARM)):
        said = "as far as this can tell, it no longer knows the classes that were to go."
        return Verdict("yes", "Yes", said, *told)
    word = "Only in part" if right < then / 2 else "No"
    return Verdict("no", word, "it still knows some of the classes that were to go.", *told)


def _harm(metrics: Scores, before: Scores) -> str:
    """What was lost that should have been kept, against the model before; empty if little."""
    names = {"RA": "retain", "TA": "test"}
    fall, score = max(
        (before.parts[part].accuracy - metrics.parts[part].accuracy, name)
        for name, part in names.items()
        if part in metrics.parts and part in before.parts
    )
    if fall <= 2 * HARM:
        return ""
    where = "the samples it should keep" if score == "RA" else "new samples"
    return f"it gets {fall:.1f} points fewer of {where} right than before."
