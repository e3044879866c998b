"""The verdict on a model that stands beside a retrained one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from qunlearn.metrics.gap import SCORES, half_width
from qunlearn.metrics.lira import auc_half_width
from qunlearn.metrics.membership import least_accuracy
from qunlearn.report.html import counted
from qunlearn.report.verdict import COARSE, HARM, PROOF, SMALLEST, Rule, Verdict, decided

PART = {"FA": "forget", "RA": "retain", "TA": "test", "MIA": "forget"}
"""The part of the split that a figure is measured on."""


@dataclass(frozen=True)
class Beside:
    """A model beside a retrained one: the four figures of each, in percent.

    Attributes:
        after: The model that has forgotten.
        before: The model that it was made from.
        retrain: The model retrained without the forgotten samples.
        samples: How many samples each part has.
        gap: AG, the mean gap.
        floor: The AG of Retrains among each other, if there are several.
        floors: The same for each figure.
        attack: How often the attack behind MIA is right, in percent, where that is known.
        lira: LiRA's figures, each with half its interval, where there are Retrains enough.
    """

    after: Mapping[str, float]
    before: Mapping[str, float]
    retrain: Mapping[str, float]
    samples: Mapping[str, int]
    gap: float
    floor: float | None = None
    floors: Mapping[str, float] = field(default_factory=dict)
    attack: float | None = None
    lira: Mapping[str, Sequence[float | None]] = field(default_factory=dict)

    @property
    def exposed(self) -> str | None:
        """What LiRA, which attacks each sample by itself, finds beyond chance, if it does."""
        for name, off in (("AUC", abs), ("AUC of |z|", float)):  # the latter is tested one-sided
            area, half = self.lira.get(name, (None, None))
            if area is None or half is None:
                continue
            # Few samples may come out alike for every seed.
            half = max(half, auc_half_width(self.samples["forget"]))
            if off(area - 0.5) > half:
                return f"{name} {area:.3f} ± {half:.3f}, where Retrain has 0.5"
        return None

    @property
    def least_accuracy(self) -> float:
        """The accuracy that the attack behind MIA must have to be better than guessing."""
        return least_accuracy(min(self.samples["retain"], self.samples["test"]))

    @property
    def guesses(self) -> bool:
        """Whether the attack cannot tell trained from unseen samples: then MIA says nothing."""
        return self.attack is not None and self.attack < self.least_accuracy

    def slack(self, score: str) -> float:
        """The gap that chance alone may make in a figure."""
        chance = half_width(self.retrain[score], self.samples[PART[score]])
        return max(SMALLEST, self.floors.get(score, 0.0), chance)

    def above(self, score: str, values: Mapping[str, float] | None = None) -> float:
        """How far a figure is above Retrain's."""
        return (self.after if values is None else values)[score] - self.retrain[score]

    @property
    def knows(self) -> bool:
        """Whether it gets more of the forgotten samples right than Retrain."""
        return self.stands_out("FA", 1)

    @property
    def loses(self) -> bool:
        """Whether it gets fewer of them right than Retrain."""
        return self.stands_out("FA", -1)

    @property
    def shows(self) -> bool:
        """Whether the attack recognises more of them than Retrain's."""
        return self.stands_out("MIA", -1)

    @property
    def hides(self) -> bool:
        """Whether the attack recognises fewer of them than Retrain's."""
        return self.stands_out("MIA", 1)

    @property
    def overshoots(self) -> bool:
        """Whether the forgotten samples look less known than to Retrain."""
        return self.loses or self.hides

    def halved(self, score: str) -> bool:
        """Whether less than half of the gap before forgetting is left."""
        return abs(self.above(score)) < abs(self.above(score, self.before)) / 2

    @property
    def _fallen(self) -> dict[str, float]:
        """How far RA and TA fell.

        Worse than Retrain is damage only where it is also worse than before: Retrain may be better
        simply because it was trained for longer.
        """
        return {
            s: min(self.before[s], self.retrain[s]) - self.after[s]
            for s in ("RA", "TA")
            if min(self.before[s], self.retrain[s]) - self.after[s] > max(HARM, self.slack(s))
        }

    @property
    def harm(self) -> float:
        """The points of RA or TA that were lost, whichever is more; 0 if none beyond chance."""
        return max(self._fallen.values(), default=0.0)

    @property
    def harm_words(self) -> str:
        """What was lost, in words."""
        where = max(self._fallen, key=lambda s: self._fallen[s])
        samples = "retained samples" if where == "RA" else "new samples"
        return f"its accuracy on {samples} is {self.harm:.1f} points lower than it should be."

    @property
    def coarse(self) -> float:
        """The gap in FA or MIA that chance alone may make, whichever is larger."""
        return max(self.slack("FA"), self.slack("MIA"))

    @property
    def telling(self) -> tuple[str, ...]:
        """The figures that say something: MIA does not where the attack only guesses."""
        return tuple(score for score in SCORES if not (score == "MIA" and self.guesses))

    @property
    def close(self) -> bool:
        """Whether each of them is within chance of Retrain's."""
        return all(abs(self.above(score)) <= self.slack(score) for score in self.telling)

    @property
    def near(self) -> bool:
        """Whether their mean gap is also within the noise floor (2 points if that is unknown)."""
        gap = sum(abs(self.above(score)) for score in self.telling) / len(self.telling)
        return self.close and gap <= (SMALLEST if self.floor is None else self.floor)

    @property
    def little(self) -> bool:
        """Whether it was like Retrain already before forgetting."""
        forgotten = [score for score in self.telling if score in ("FA", "MIA")]
        return all(abs(self.above(s, self.before)) <= self.slack(s) for s in forgotten)

    def stands_out(self, score: str, sign: int) -> bool:
        """Whether the gap in that direction exceeds chance, and HARM points or half of before."""
        if score == "MIA" and self.guesses:
            return False
        off, was = sign * self.above(score), sign * self.above(score, self.before)
        return off > self.slack(score) and (off > HARM or 0 < was / 2 < off)


KNOWS = "it still gets more of the forgotten samples right than a retrained model would."
SHOWS = "an attacker can still tell more of the forgotten samples from unseen ones."
LOSES = (
    "it does worse on the forgotten samples than a model that never saw them, which can itself "
    "give them away."
)
HIDES = (
    "it is less confident on the forgotten samples than a model that never saw them, which can "
    "itself give them away."
)

RULES: tuple[Rule[Beside], ...] = (
    # What should be retained is lost.
    Rule(lambda v: v.harm > 0 and v.overshoots, "too-much", "Too much", lambda v: v.harm_words),
    Rule(lambda v: v.harm > 0, "damaged", "Damaged", lambda v: v.harm_words),
    # Something of the forgotten samples is left, or too little.
    Rule(
        lambda v: (v.knows and v.hides) or (v.loses and v.shows),
        "no",
        "Not cleanly",
        "on the forgotten samples it differs from a retrained model in both directions.",
    ),
    Rule(lambda v: v.knows and v.halved("FA"), "no", "Only in part", KNOWS),
    Rule(lambda v: v.knows, "no", "No", KNOWS),
    Rule(lambda v: v.shows and v.halved("MIA"), "no", "Only in part", SHOWS),
    Rule(lambda v: v.shows, "no", "No", SHOWS),
    Rule(lambda v: v.loses, "too-much", "Too much", LOSES),
    Rule(lambda v: v.hides, "too-much", "Too much", HIDES),
    # The measurements decide nothing.
    Rule(
        lambda v: v.guesses and v.little,
        "unsure",
        "Inconclusive",
        "the model treats samples that it never saw much like those it was trained on.",
    ),
    Rule(
        lambda v: v.coarse > COARSE,
        "unsure",
        "Inconclusive",
        ("the measurement error is too large to tell whether it differs from a retrained model."),
    ),
    # It is like a Retrain, or nearly so.
    Rule(
        lambda v: v.near and v.exposed is not None,
        "mostly",
        "Mostly",
        (
            "on the whole it behaves like a model that never saw them, but an attack on each "
            "sample by itself can tell some of them."
        ),
    ),
    Rule(
        lambda v: v.near,
        "yes",
        "Yes",
        "as far as these measurements can tell, it behaves like a retrained model.",
    ),
    Rule(
        lambda v: v.close,
        "mostly",
        "Mostly",
        (
            "each figure is within chance of a retrained model's, but all together are a little "
            "further off than chance alone would make them."
        ),
    ),
    Rule(
        lambda v: True,
        "mostly",
        "Mostly",
        "it behaves much like a retrained model, but is distinguishable from one.",
    ),
)
"""In this order: the first rule that applies decides."""


def beside_retrain(view: Beside) -> Verdict:
    """The answer where there is a retrained model to compare with."""
    return decided(RULES, view, _figures(view), _cautions(view), view.coarse)


def _figures(view: Beside) -> tuple[str, ...]:
    after, before, retrain = view.after, view.before, view.retrain
    gap = f"On average the four figures are {view.gap:.1f} points from Retrain's (AG)"
    if view.floor is not None:
        gap += f"; Retrains that differ in their seed alone are {view.floor:.1f} points apart"
    return (
        f"It gets {after['FA']:.1f} % of the forgotten samples right ({before['FA']:.1f} % "
        f"before); a model retrained without them gets {retrain['FA']:.1f} %.",
        f"An attacker takes {after['MIA']:.1f} % of them for samples the model never saw "
        f"({before['MIA']:.1f} % before); for the retrained model it is {retrain['MIA']:.1f} %.",
        f"{gap}.",
    )


def _cautions(view: Beside) -> tuple[str, ...]:
    cautions, coarse = [], view.coarse
    if view.guesses:
        cautions.append(
            "The membership attack is too weak to judge by, so accuracy decides: on its own "
            f"training samples the attack reaches {view.attack:.1f} %, and guessing may reach "
            f"{view.least_accuracy:.1f} %."
        )
    if view.exposed:
        cautions.append(
            f"LiRA, which judges each sample by itself, identifies some of them: {view.exposed}."
        )
    if view.little:
        cautions.append(
            "Already before forgetting the model was not clearly different from Retrain on these "
            "samples: there was little to forget, so this says little about the method."
        )
    cautions.append(
        f"With {counted(view.samples['forget'], 'forgotten sample')}"
        f"{' and the spread between seeds' if view.floors else ''}, gaps of up to {coarse:.0f} "
        f"points may be chance{'; use more samples or seeds' * (coarse > COARSE)}."
    )
    if view.floor is None:
        cautions.append(
            "With a single Retrain it is not known how much of the gap is chance; a comparison "
            "over several seeds (qunlearn compare) shows it."
        )
    return (*cautions, PROOF)
