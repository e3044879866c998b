"""The target of forgetting: the confidence that a network has in samples it never saw.

No Retrain is needed: the original network shows on its held-out samples what unseen data looks
like. A sample's difficulty is the network's confidence in its augmented versions, which shows even
if the sample itself is memorised. The targets are a quantile map: a forgotten sample that is harder
than 80 % of the retained ones gets the confidence that 80 % of the held-out samples exceed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from qunlearn.data import Loader, Split
from qunlearn.data.draw import spread
from qunlearn.methods.constants import (
    CLOSE,
    DRAWS,
    FAR,
    LEARNING,
    MEMBERS,
    PRIOR,
    RECOVERED,
    REST,
    UNEVEN,
    UNKNOWN,
    UNSEEN,
)
from qunlearn.methods.schedule import Depth
from qunlearn.metrics import entropy, ks_chance, ks_distance, margin
from qunlearn.training.inference import TOGETHER, predict, scoring


@dataclass(frozen=True)
class Target:
    """The target: how confident the network is to be on the forgotten samples.

    Attributes:
        margins: The target log-odds of the true label, for each sample of the data set; -∞ in
            class-wise forgetting, NaN for samples that have no target.
        unseen: How many unseen samples it was estimated from.
        variance: The variance of the network's confidence on unseen samples.
        entropy: The expected mean entropy on unseen samples of a network that was trained on the
            retained samples alone.
    """

    margins: Tensor
    unseen: int
    variance: float
    entropy: float

    @property
    def confidences(self) -> Tensor:
        """The same as probabilities."""
        return self.margins.sigmoid()


@dataclass(frozen=True)
class Ranking:
    """The rank of each forget sample by difficulty, compared with retained samples.

    Attributes:
        overall: The fraction of retained samples that are harder.
        in_class: The same, of the retained samples of its class.
        members: How many retained samples of its class it was compared with.
    """

    overall: Tensor
    in_class: Tensor
    members: Tensor


class TargetEstimator:
    """Estimates the target from a network's predictions on unseen samples.

    Samples are ranked once, by the network before it forgets. The target can be estimated again
    later, from the network as it is then.

    Args:
        model: The network before it forgets.
        split: Says what is to be forgotten.
        unseen: Indices of samples that the network was not trained on.
        seed: Seed of the augmented versions.
    """

    def __init__(self, model: nn.Module, split: Split, unseen: Tensor, seed: int):
        self.split, self.unseen = split, spread(unseen, UNSEEN)
        self.ranking = _rank(model, split, seed)
        self.retained = len(split.retain) / (len(split.retain) + len(split.forget))

    def estimate(self, model: nn.Module) -> Target:
        """The target, from what a network predicts on unseen samples now."""
        split, ranking, labels = self.split, self.ranking, self.split.data.labels
        logits = predict(model, split.data, self.unseen)
        reference = margin(logits, labels[self.unseen])
        over_all = torch.quantile(with_less_data(reference, self.retained), ranking.overall)
        margins = torch.full((len(labels),), torch.nan)
        retained_classes = set(labels[split.retain].tolist())
        for label, rows in _by_class(labels, split.forget):
            if label not in retained_classes:
                margins[split.forget[rows]] = -torch.inf
                continue
            in_class, count = over_all[rows], torch.zeros(len(rows))
            of_class = reference[labels[self.unseen] == label]
            if len(of_class):
                expected = with_less_data(of_class, self.retained)
                in_class = torch.quantile(expected, ranking.in_class[rows])
                count = ranking.members[rows].clamp(max=len(of_class))
            weight = count / (count + PRIOR)
            margins[split.forget[rows]] = weight * in_class + (1 - weight) * over_all[rows]
        variance = float(reference.sigmoid().var(correction=0))
        return Target(
            margins,
            len(self.unseen),
            (len(self.unseen) * variance + UNKNOWN / 4) / (len(self.unseen) + UNKNOWN),
            float(entropy(logits).mean()) * self.retained**-LEARNING,
        )


def _rank(model: nn.Module, split: Split, seed: int) -> Ranking:
    """Rank the samples to forget among some of the retained ones."""
    labels, members = split.data.labels, spread(split.retain, MEMBERS)
    difficulty = difficulties(model, split, torch.cat([members, split.forget]), seed)
    overall = rank(difficulty[split.forget], difficulty[members])
    in_class, count = overall.clone(), torch.zeros(len(split.forget))
    for label, rows in _by_class(labels, split.forget):
        of_class = members[labels[members] == label]
        count[rows] = len(of_class)
        if len(of_class):
            in_class[rows] = rank(difficulty[split.forget[rows]], difficulty[of_class])
    return Ranking(overall, in_class, count)


def difficulties(model: nn.Module, split: Split, index: Tensor, seed: int) -> Tensor:
    """The mean log-odds of the true label over augmented versions; 0 for samples not in `index`."""
    data = split.data
    total = torch.zeros(len(data))
    loader = Loader(data, index, 500, seed=seed, shuffle=False, stream="difficulty")
    draws = DRAWS if loader.augment else 1  # else all versions are the same
    with scoring(model) as logits:
        for draw in range(draws):
            for batch in loader.epoch(draw):
                outputs = torch.cat([logits(part) for part in torch.split(batch.images, TOGETHER)])
                total[batch.index] += margin(outputs, batch.labels)
    return total / draws


def with_less_data(margins: Tensor, fraction: float) -> Tensor:
    """The log-odds that a network trained on a `fraction` of the data would have on unseen samples.

    The error rate grows by a power law (exponent `LEARNING`). To reach the new error rate, each
    quantile q of the distribution is replaced by the quantile q^p.

    >>> with_less_data(torch.tensor([-1.0, 1.0, 2.0, 3.0, 4.0, 5.0]), fraction=1.0)
    tensor([-1.,  1.,  2.,  3.,  4.,  5.])
    """
    error = float((margins < 0).float().mean())
    expected = min(error * fraction**-LEARNING, 0.99)
    if not 0 < error < expected:
        return margins
    power = math.log(error) / math.log(expected)
    shares = (torch.arange(len(margins)).to(margins) + 0.5) / len(margins)
    return torch.quantile(margins, shares**power)


def _by_class(labels: Tensor, index: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Each class of some samples, and the positions of its members in `index`."""
    for label in sorted(set(labels[index].tolist())):
        yield label, (labels[index] == label).nonzero().squeeze(1)


def rank(values: Tensor, others: Tensor) -> Tensor:
    """The share of `others` below each value; ties count by half.

    >>> rank(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 2.0, 3.0, 4.0]))
    tensor([0.0000, 0.3750])
    """
    ordered = others.sort().values
    below = torch.searchsorted(ordered, values, right=False)
    upto = torch.searchsorted(ordered, values, right=True)
    return ((below + upto) / (2 * len(ordered))).clamp(0, 1).to(values)


@dataclass(frozen=True)
class WrongTargets:
    """The samples whose target is a wrong prediction.

    Attributes:
        samples: Their number.
        target: Their mean target log-odds of the true label.
        reached: Their mean log-odds after forgetting.
    """

    samples: int
    target: float
    reached: float


State = Literal["reached", "short", "too far", "uneven", "little", "open"]
"""Whether a target was reached; see `Calibration.state`."""

Extension = Literal["target", "retained", "depth"]
"""Why steps are added to the plan."""


@dataclass(frozen=True)
class Calibration:
    """The target of the calibrated method, and what it reached.

    Attributes:
        target: The target: a mean confidence in the true label, in percent.
        reached: The mean confidence that was reached, in percent.
        before: The mean confidence before forgetting, in percent.
        chance: How far `reached` may be from `target` by chance (95 %), in points, given how few
            forgotten and unseen samples there are.
        samples: How many samples were forgotten.
        unseen: How many unseen samples the target was estimated from.
        random: Whether the request is a random fraction, which unseen samples represent well.
        class_wise: Whether the request is for whole classes, and nothing else.
        distance: The Kolmogorov-Smirnov distance between the confidences on the forgotten samples
            and their targets, from 0 to 1; None if unknown, and in class-wise forgetting.
        distance_before: The same before forgetting.
        distance_chance: The distance that chance may explain (99 %).
        depth: "deep" or "shallow"; None if that is not known.
        depth_asked: Whether the user set it; else the method chose it.
        steps: How many steps it took; 0 if that is not known.
        lr: The learning rate; None if that is not known.
        waited_for: Why steps were added to the plan, in order.
        retained_before: The accuracy on a sample of the retained samples before forgetting.
        retained_after: The same after it.
        retained_fall: By how many points it may fall; beyond that the repair is repeated.
        logit_scale: What all logits were multiplied by, to restore the temperature.
        limited: Whether the user allowed fewer steps than planned.
        wrong: The samples whose target is a wrong prediction, if there are any.
    """

    target: float
    reached: float
    before: float
    chance: float
    samples: int
    unseen: int
    random: bool
    class_wise: bool = False
    distance: float | None = None
    distance_before: float | None = None
    distance_chance: float = 0.0
    depth: Depth | None = None
    depth_asked: bool = True
    steps: int = 0
    lr: float | None = None
    waited_for: tuple[Extension, ...] = ()
    retained_before: float | None = None
    retained_after: float | None = None
    retained_fall: float = RECOVERED
    logit_scale: float = 1.0
    limited: bool = False
    wrong: WrongTargets | None = None

    @property
    def state(self) -> State:
        """Whether the target was reached: the mean first, then the distribution.

        "uneven": the mean is at its target, but the distribution is not.
        """
        state = state_of(self.target, self.reached, self.before, self.chance, self.samples)
        if state == "reached" and (self.distance or 0) > max(UNEVEN, self.distance_chance):
            return "uneven"
        return state

    @property
    def recovered(self) -> bool:
        """Whether retained samples are as accurate as before, or too little is known to deny it."""
        if self.retained_before is None or self.retained_after is None:
            return True
        return self.retained_after >= self.retained_before - self.retained_fall

    @property
    def met(self) -> bool:
        """Whether the target was reached, or too little is known to deny it."""
        return self.state not in ("short", "too far", "uneven")


def state_of(target: float, reached: float, before: float, chance: float, samples: int) -> State:
    """Whether a target was reached, from mean confidences in percent.

    Returns:
        "reached", "short" (above the target) or "too far" (below it). "little": the samples were
        hardly above their target before forgetting. "open": a single sample is far below its
        target, which may happen to one that the network never saw.

    >>> [state_of(75.0, reached, 98.0, 24.0, samples=10) for reached in (90.0, 78.0, 70.0, 62.0)]
    ['short', 'reached', 'reached', 'too far']
    >>> state_of(75.0, 62.0, 98.0, 60.0, samples=1)
    'open'
    """
    above, distance = reached - target, before - target
    # No sample is taught: one that was below its target before stays there.
    below = min(target, before) - reached
    if above > max(CLOSE, min(chance, REST * distance)):
        return "short"
    if below > max(CLOSE, chance if samples == 1 else min(chance, FAR)):
        return "too far"
    if distance <= CLOSE:
        return "little"
    return "open" if below > FAR else "reached"


def calibration_of(target: Target, split: Split, before: Tensor, now: Tensor) -> Calibration:
    """Compare the confidence that was reached with its target.

    Args:
        target: The target.
        split: What was to be forgotten.
        before: The log-odds of the true label of the forgotten samples before forgetting.
        now: The same after it.
    """
    margins = target.margins[split.forget]
    inverse_counts = 1 / len(now) + 1 / target.unseen
    has_reference = margins > -torch.inf
    # In class-wise forgetting the target is 0 % and certain.
    uncertain = float(has_reference.double().mean())
    wrong = (margins < 0) & has_reference
    return Calibration(
        target=100 * float(margins.sigmoid().mean()),
        reached=100 * float(now.sigmoid().mean()),
        before=100 * float(before.sigmoid().mean()),
        chance=196 * math.sqrt(uncertain * target.variance * inverse_counts),
        samples=len(now),
        unseen=target.unseen,
        random=split.requests[-1].kind == "random",
        class_wise=not uncertain,
        distance=ks_distance(now, margins) if uncertain == 1 else None,
        distance_before=ks_distance(before, margins) if uncertain == 1 else None,
        distance_chance=ks_chance(len(now), target.unseen),
        wrong=WrongTargets(int(wrong.sum()), float(margins[wrong].mean()), float(now[wrong].mean()))
        if wrong.any()
        else None,
    )
