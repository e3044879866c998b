"""The verdict on a model that stands beside a retrained one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from qunlearn.metrics.gap import SCORES, half_width
from qunlearn.metrics.lira import auc_half_width
from qunlearn.metrics.membership import least_accuracy
from qunlearn.report.html import counted
from qunlearn.report.verdict import COARSE, HARM, PROOF, SMALLEST, Verdict

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
    def told_apart(self) -> str | None:
        """What LiRA, which attacks each sample by itself, finds beyond chance, if it does."""
        for name, off in (("AUC", abs), ("AUC of |z|", float)):  # |z| below Retrain's is no find
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

    def stands_out(self, score: str, sign: int) -> bool:
        """Whether a figure is off Retrain's in that direction, beyond chance and by much.

        Much is a number of points, or most of the way that there was to go.
        """
        if score == "MIA" and self.guesses:
            return False
        off, was = sign * self.above(score), sign * self.above(score, self.before)
        return off > self.slack(score) and (off > HARM or 0 < was / 2 < off)


def beside_retrain(view: Beside) -> Verdict:
    """The answer where there is a retrained model to compare with."""
    slack = {score: view.slack(score) for score in SCORES}
    above = {score: view.above(score) for score in SCORES}
    knows, shows = view.stands_out("FA", 1), view.stands_out("MIA", -1)
    lost, hidden = view.stands_out("FA", -1), view.stands_out("MIA", 1)
    # Worse than Retrain is damage only where it is also worse than before: Retrain may be better
    # simply because it was trained for longer.
    fallen = {s: min(view.before[s], view.retrain[s]) - view.after[s] for s in ("RA", "TA")}
    harmed = [s for s in fallen if fallen[s] > max(HARM, slack[s])]
    coarse = max(slack["FA"], slack["MIA"])
    told = _figures(view), _cautions(view, coarse)
    if harmed:
        worst = max(harmed, key=lambda s: fallen[s])
        where = "the samples it should keep" if worst == "RA" else "new samples"
        said = f"it gets {fallen[worst]:.1f} points fewer of {where} right than it should."
        word = "Too much" if lost or hidden else "Damaged"
        return Verdict("too-much" if word == "Too much" else "damaged", word, said, *told)
    if (knows and hidden) or (lost and shows):
        said = "on the forgotten samples it behaves unlike a retrained model, in both directions."
        return Verdict("no", "Not cleanly", said, *told)
    if knows or shows:
        said = (
            "it still gets more of the forgotten samples right than a retrained model would."
            if knows
            else "an attacker can still tell more of the forgotten samples from unseen ones."
        )
        score = "FA" if knows else "MIA"
        halved = abs(above[score]) < abs(view.above(score, view.before)) / 2
        return Verdict("no", "Only in part" if halved else "No", said, *told)
    if lost or hidden:
        said = (
            "it does worse on the forgotten samples than a model that never saw them, which can "
            "itself give them away."
            if lost
            else "it is less sure of the forgotten samples than a model that never saw them, which "
            "can itself give them away."
        )
        return Verdict("too-much", "Too much", said, *told)
    if view.guesses:
        said = "the model treats samples that it never saw much like those it was trained on."
        return Verdict("unsure", "Cannot be told", said, *told)
    if coarse > COARSE:
        said = "the measurements are too coarse to tell it from a retrained model, or to be sure."
        return Verdict("unsure", "Cannot be told", said, *told)
    close = all(abs(above[score]) <= slack[score] for score in SCORES)
    near = close and view.gap <= (SMALLEST if view.floor is None else view.floor)
    if near and view.told_apart:
        said = (
            "on the whole it behaves like a model that never saw them, but an attack on each "
            "sample by itself (LiRA) can tell some of them."
        )
        return Verdict("mostly", "Mostly", said, *told)
    if near:
        said = "as far as these measurements can tell, it behaves like a model that never saw them."
        return Verdict("yes", "Yes", said, *told)
    said = (
        "each figure is within chance of a model's that never saw the samples, but all together "
        "are a little further off than chance alone would make them."
        if close
        else "it behaves much like a model that never saw the samples, but can be told from one."
    )
    return Verdict("mostly", "Mostly", said, *told)


def _figures(view: Beside) -> tuple[str, ...]:
    after, before, retrain = view.after, view.before, view.retrain
    gap = f"All four figures are {view.gap:.1f} points from Retrain's on average (AG)"
    if view.floor is not None:
        gap += f"; Retrains that differ in their seed alone are {view.floor:.1f} points apart"
    return (
        f"It gets {after['FA']:.1f} % of the forgotten samples right ({before['FA']:.1f} % "
        f"before); a model retrained without them gets {retrain['FA']:.1f} %.",
        f"An attacker takes {after['MIA']:.1f} % of them for samples the model never saw "
        f"({before['MIA']:.1f} % before); for the retrained model it is {retrain['MIA']:.1f} %.",
        f"{gap}.",
    )


def _cautions(view: Beside, coarse: float) -> tuple[str, ...]:
    cautions = []
    if view.guesses:
        cautions.append(
            f"The attack is right on {view.attack:.1f} % of samples that it knows the answer of, "
            f"where one that guesses may be right on {view.least_accuracy:.1f} %: what it takes "
            "forgotten samples for says nothing."
        )
    if view.told_apart:
        cautions.append(
            f"LiRA, which judges each sample by itself, finds them out: {view.told_apart}."
        )
    if all(abs(view.above(s, view.before)) <= view.slack(s) for s in ("FA", "MIA")):
        cautions.append(
            "Already before forgetting the model was not clearly different from Retrain on these "
            "samples: there was little to forget, so this says little about the method."
        )
    cautions.append(
        f"With {counted(view.samples['forget'], 'forgotten sample')}"
        f"{' and the spread between seeds' if view.floors else ''}, gaps of up to {coarse:.0f} "
        f"points may be chance{'; more samples or seeds would tell' * (coarse > COARSE)}."
    )
    if view.floor is None:
        cautions.append(
            "With a single Retrain it is not known how much of the gap is chance; a comparison "
            "over several seeds (qunlearn compare) shows it."
        )
    return (*cautions, PROOF)
