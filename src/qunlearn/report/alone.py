"""The verdict on a model without a retrained one: the best that can be had."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from qunlearn.metrics import PartScores, Scores
from qunlearn.metrics.gap import half_width
from qunlearn.report.verdict import COARSE, HARM, PROOF, SMALLEST, Rule, Verdict, decided

FIGURES = {
    "accuracy": (1, "Accuracy"),
    "confidence": (100, "Mean confidence in the true label"),
}
"""What is compared with unseen samples: what makes percent of it, and its name."""

NO_REFERENCE = (
    "There is no retrained model to compare with (--reference): samples that the model never saw "
    "took its place. Only a model retrained without the forgotten samples shows exactly how they "
    "should be treated."
)


@dataclass(frozen=True)
class Gap:
    """How far the forgotten samples are above unseen ones in a figure, in points.

    Attributes:
        after: In the model that has forgotten.
        before: In the model that it was made from.
        chance: The gap that chance alone may make.
    """

    after: float
    before: float
    chance: float

    @property
    def slack(self) -> float:
        """The gap up to which the figures count as equal."""
        return max(SMALLEST, self.chance)

    @property
    def halved(self) -> bool:
        """Whether less than half of the gap before forgetting is left."""
        return self.after < self.before / 2


@dataclass(frozen=True)
class Alone:
    """A model after forgetting, and before."""

    after: Scores
    before: Scores

    @property
    def _unseen(self) -> str:
        return "held_out" if "held_out" in self.after.parts else "test"

    @property
    def parts(self) -> tuple[PartScores, PartScores]:
        """The forgotten samples and the unseen ones, after forgetting."""
        return self.after.parts["forget"], self.after.parts[self._unseen]

    @property
    def parts_before(self) -> tuple[PartScores, PartScores]:
        """The same before forgetting."""
        return self.before.parts["forget"], self.before.parts[self._unseen]

    @cached_property
    def gaps(self) -> dict[str, Gap]:
        """The gap of each figure."""
        (now, unseen), (then, unseen_then) = self.parts, self.parts_before
        return {
            name: Gap(
                scale * (getattr(now, name) - getattr(unseen, name)),
                scale * (getattr(then, name) - getattr(unseen_then, name)),
                math.hypot(
                    half_width(scale * getattr(now, name), now.samples),
                    half_width(scale * getattr(unseen, name), unseen.samples),
                ),
            )
            for name, (scale, _) in FIGURES.items()
        }

    @property
    def coarse(self) -> float:
        """The gap that chance alone may make, in whichever figure it is larger."""
        return max(gap.chance for gap in self.gaps.values())

    def above(self, name: str) -> bool:
        """Whether a figure is higher on forgotten samples than on unseen ones, beyond chance."""
        return self.gaps[name].after > self.gaps[name].slack

    @property
    def below(self) -> bool:
        """Whether a figure is lower on forgotten samples than on unseen ones, beyond chance."""
        return any(-gap.after > gap.slack for gap in self.gaps.values())

    @property
    def differed(self) -> list[Gap]:
        """The gaps that were beyond chance before forgetting."""
        return [gap for gap in self.gaps.values() if gap.before > gap.slack]

    @property
    def fall(self) -> tuple[float, str]:
        """By how many points RA or TA fell, whichever fell more, and which of them it is."""
        return max(
            (self.before.parts[part].accuracy - self.after.parts[part].accuracy, name)
            for name, part in {"RA": "retain", "TA": "test"}.items()
            if part in self.after.parts and part in self.before.parts
        )

    @property
    def harmed(self) -> bool:
        """Whether the accuracy on retained or test samples fell by more than twice `HARM`."""
        return self.fall[0] > 2 * HARM

    @property
    def class_forgotten(self) -> bool:
        """Whether it gets none of the forgotten classes' samples right, within chance."""
        slack = half_width(0, self.after.parts["forget"].samples)
        right = self.after.FA
        return right <= max(SMALLEST, min(slack, HARM))


def _harm_words(view: Alone) -> str:
    fall, score = view.fall
    samples = "retained samples" if score == "RA" else "new samples"
    return f"its accuracy on {samples} is {fall:.1f} points lower than before."


DAMAGED: Rule[Alone] = Rule(lambda v: v.harmed, "damaged", "Damaged", _harm_words)
CONFIDENT = "it is still more confident on the forgotten samples than on unseen ones."
RIGHT = "it still gets more of the forgotten samples right than of unseen ones."
KNOWS_CLASS = "it still knows some of the classes that were to be forgotten."

RULES: tuple[Rule[Alone], ...] = (
    DAMAGED,
    # Something of the forgotten samples is left, or too little.
    Rule(
        lambda v: v.above("confidence") and v.gaps["confidence"].halved,
        "no",
        "Only in part",
        CONFIDENT,
    ),
    Rule(lambda v: v.above("confidence"), "no", "No", CONFIDENT),
    Rule(lambda v: v.above("accuracy") and v.gaps["accuracy"].halved, "no", "Only in part", RIGHT),
    Rule(lambda v: v.above("accuracy"), "no", "No", RIGHT),
    Rule(
        lambda v: v.below,
        "too-much",
        "Too much",
        (
            "it does worse on the forgotten samples than on unseen ones, which can itself give "
            "them away."
        ),
    ),
    # The measurements decide nothing.
    Rule(
        lambda v: v.coarse > COARSE,
        "unsure",
        "Inconclusive",
        "there are too few samples to see whether anything is left.",
    ),
    Rule(
        lambda v: not v.differed,
        "unsure",
        "Inconclusive",
        "even before forgetting, the difference from unseen samples was within chance.",
    ),
    Rule(
        lambda v: any(gap.after > gap.before / 2 for gap in v.differed),
        "unsure",
        "Inconclusive",
        "most of the difference from unseen samples is still there, though within chance.",
    ),
    Rule(
        lambda v: True,
        "yes",
        "Yes",
        "as far as these measurements can tell, it treats the forgotten samples like unseen ones.",
    ),
)
"""In this order: the first rule that applies decides."""

CLASS_RULES: tuple[Rule[Alone], ...] = (
    DAMAGED,
    Rule(
        lambda v: v.class_forgotten,
        "yes",
        "Yes",
        "as far as these measurements can tell, it no longer knows the forgotten classes.",
    ),
    Rule(lambda v: v.after.FA < v.before.FA / 2, "no", "Only in part", KNOWS_CLASS),
    Rule(lambda v: True, "no", "No", KNOWS_CLASS),
)
"""The same where whole classes were forgotten."""


def alone(metrics: Scores, before: Scores, whole_class: bool = False) -> Verdict:
    """The answer without a retrained model: forgotten samples beside others it never saw.

    Args:
        metrics: What is measured on the model that has forgotten.
        before: The same of the model before.
        whole_class: No sample of the forgotten classes is retained, so a retrained model would get
            none of them right, seen or not.
    """
    view = Alone(metrics, before)
    if whole_class:
        chance = half_width(view.after.FA, view.after.parts["forget"].samples)
        cautions: tuple[str, ...] = (NO_REFERENCE, PROOF)
        return decided(CLASS_RULES, view, _class_figures(view), cautions, chance)
    return decided(RULES, view, _figures(view), _cautions(view), view.coarse)


def _figures(view: Alone) -> tuple[str, ...]:
    (now, unseen), (then, unseen_then) = view.parts, view.parts_before
    return tuple(
        f"{name}: forgotten samples {scale * getattr(now, key):.1f} %, unseen ones "
        f"{scale * getattr(unseen, key):.1f} % (before {scale * getattr(then, key):.1f} % and "
        f"{scale * getattr(unseen_then, key):.1f} %)."
        for key, (scale, name) in FIGURES.items()
    )


def _class_figures(view: Alone) -> tuple[str, ...]:
    figures = [
        f"It gets {view.after.FA:.1f} % of the forgotten classes' samples right; before it was "
        f"{view.before.FA:.1f} %. A model that never saw these classes gets none right."
    ]
    if unseen := view.after.parts.get("test_forgotten"):
        figures.append(f"Of their unseen samples it gets {unseen.accuracy:.1f} % right.")
    return tuple(figures)


def _cautions(view: Alone) -> tuple[str, ...]:
    if view.coarse <= COARSE:
        return NO_REFERENCE, PROOF
    forgotten, unseen = view.parts
    return (
        f"With {forgotten.samples:,} forgotten and {unseen.samples:,} unseen samples, gaps of up "
        f"to {view.coarse:.0f} points may be chance.",
        NO_REFERENCE,
        PROOF,
    )
