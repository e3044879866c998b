"""The target of forgetting: the confidence that a network has in samples it never saw.

No Retrain is needed: the original network shows on its held-out samples what unseen data looks
like. A sample's difficulty is the network's confidence in its augmented versions, which shows even
if the sample itself is memorised. The targets are a quantile map: a forgotten sample that is harder
than 80 % of the retained ones gets the confidence that 80 % of the held-out samples exceed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from qunlearn.data import Loader, Split
from qunlearn.methods.constants import (
    CLOSE,
    DRAWS,
    FAR,
    LEARNING,
    MEMBERS,
    PRIOR,
    REST,
    UNKNOWN,
)
from qunlearn.metrics import margin
from qunlearn.training.inference import TOGETHER, predict, scoring


@dataclass(frozen=True)
class Target:
    """What the forgotten samples are to look like.

    Attributes:
        margins: The target log-odds of the true label, for each sample of the data set; -∞ in
            class-wise forgetting, NaN for samples that are not forgotten.
        unseen: How many unseen samples it was estimated from.
        variance: That of the network's confidence in such samples.
        before: The network's confidence in each sample to be forgotten, in their order.
        random: Whether the request is a random share, for which unseen samples are the right model.
    """

    margins: Tensor
    unseen: int
    variance: float
    before: Tensor
    random: bool

    @property
    def confidences(self) -> Tensor:
        """The same as probabilities."""
        return self.margins.sigmoid()

    def distance(self, forget: Tensor) -> float:
        """The mean distance of the samples at these places above their targets.

        Without class-wise forgetting: such samples lose what they share, and fall by themselves.
        """
        targets = self.margins[forget]
        above = (self.before - targets.sigmoid())[targets > -torch.inf]
        return float(above.mean()) if len(above) else 0.0


def find_target(model: nn.Module, split: Split, unseen: Tensor, seed: int) -> Target:
    """Estimate the log-odds that a network which never saw the forget samples would give them.

    Args:
        model: The network before it forgets.
        split: Says what is to be forgotten.
        unseen: Where samples are that the network was not trained on.
        seed: Of the augmented versions.
    """
    labels = split.data.labels
    members = split.retain[torch.arange(0, len(split.retain), -(-len(split.retain) // MEMBERS))]
    difficulty = difficulties(model, split, torch.cat([members, split.forget]), seed)
    reference = torch.full((len(labels),), torch.nan)
    reference[unseen] = margin(predict(model, split.data, unseen), labels[unseen])
    margins = torch.full((len(labels),), torch.nan)
    retained = len(split.retain) / (len(split.retain) + len(split.forget))
    over_all = quantile_map(
        difficulty[split.forget], difficulty[members], with_less_data(reference[unseen], retained)
    )
    classes = set(labels[split.retain].tolist())
    for label, rows in _by_class(labels, split.forget):
        class_members, class_unseen = (part[labels[part] == label] for part in (members, unseen))
        if label not in classes:
            margins[split.forget[rows]] = -torch.inf
            continue
        count = min(len(class_members), len(class_unseen))
        in_class = over_all[rows]
        if count:
            expected = with_less_data(reference[class_unseen], retained)
            in_class = quantile_map(
                difficulty[split.forget[rows]], difficulty[class_members], expected
            )
        weight = count / (count + PRIOR)
        margins[split.forget[rows]] = weight * in_class + (1 - weight) * over_all[rows]
    spread = float(reference[unseen].sigmoid().var(correction=0))
    variance = (len(unseen) * spread + UNKNOWN / 4) / (len(unseen) + UNKNOWN)
    before = margin(predict(model, split.data, split.forget), labels[split.forget]).sigmoid()
    random = split.requests[-1].kind == "random"
    return Target(margins, len(unseen), variance, before, random)


def difficulties(model: nn.Module, split: Split, index: Tensor, seed: int) -> Tensor:
    """The mean log-odds of the true label over augmented versions, at the samples' places."""
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
    """The log-odds on unseen samples of a network that learned from a `fraction` of the data.

    The error rate grows by the usual power law. The distribution is shifted for it by quantiles:
    q becomes q^p, with p such that the new error rate comes out.

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
    """Each class among some samples, and where among them it is."""
    for label in sorted(set(labels[index].tolist())):
        yield label, (labels[index] == label).nonzero().squeeze(1)


def quantile_map(values: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """For each value, the quantile of `target` that the value is in `source`."""
    ordered = source.sort().values
    below = torch.searchsorted(ordered, values, right=False)
    upto = torch.searchsorted(ordered, values, right=True)
    share = (below + upto) / (2 * len(ordered))
    return torch.quantile(target, share.clamp(0, 1).to(target))


@dataclass(frozen=True)
class WrongTargets:
    """The samples whose target is a wrong prediction.

    Attributes:
        samples: How many they are.
        target: The mean log-odds of the true label that they were to have.
        reached: The mean log-odds that they have.
    """

    samples: int
    target: float
    reached: float


State = Literal["reached", "short", "too far", "little", "open"]
"""Whether a target was reached; see `state_of`."""


@dataclass(frozen=True)
class Calibration:
    """The target of a calibrated method, and what it reached.

    Attributes:
        target: The mean confidence in the true label that was aimed at, in percent.
        reached: The one that was reached, in percent.
        before: The one before forgetting, in percent.
        chance: By how much target and reached may differ by chance (95 %), in points, since both
            the forgotten and the unseen samples are few.
        samples: How many samples were forgotten.
        unseen: How many unseen samples the target was estimated from.
        random: Whether the request is a random share, for which unseen samples are the right model.
        class_wise: Whether the request is for whole classes, and nothing else.
        epochs: How many epochs it took; 0 if that is not known.
        reached_in_epoch: In which epoch the samples were at or below target for the first time.
        logit_scale: What all logits were multiplied by, to restore the temperature.
        lr: The learning rate; None if that is not known.
        lowered: Settings that were given, and are below the method's own choice.
        raised: Settings that were given, and are above the method's own choice.
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
    epochs: int = 0
    reached_in_epoch: int | None = None
    logit_scale: float = 1.0
    lr: float | None = None
    lowered: tuple[str, ...] = ()
    raised: tuple[str, ...] = ()
    wrong: WrongTargets | None = None

    @property
    def state(self) -> State:
        """Whether the target was reached."""
        return state_of(self.target, self.reached, self.before, self.chance, self.samples)

    @property
    def met(self) -> bool:
        """Whether nothing speaks against it."""
        return self.state not in ("short", "too far")


def state_of(target: float, reached: float, before: float, chance: float, samples: int) -> State:
    """Whether a target was reached, from mean confidences in percent.

    Returns:
        "reached"; "short"; "too far"; "little" if there was little to forget, since the samples
        were hardly above their target; or "open": a single sample is far below its target, as a
        single one that the network never saw may be.

    >>> [state_of(75.0, reached, 98.0, 24.0, samples=10) for reached in (90.0, 78.0, 70.0, 62.0)]
    ['short', 'reached', 'reached', 'too far']
    >>> state_of(75.0, 62.0, 98.0, 60.0, samples=1)
    'open'
    """
    above, way = reached - target, before - target
    # No sample is taught: what was below its target before is not to be blamed on the method.
    below = min(target, before) - reached
    if above > max(CLOSE, min(chance, REST * way)):
        return "short"
    if below > max(CLOSE, chance if samples == 1 else min(chance, FAR)):
        return "too far"
    if way <= CLOSE:
        return "little"
    return "open" if below > FAR else "reached"


def reached_in(course: Sequence[float]) -> int | None:
    """In which epoch the samples were at or below their targets for the first time, if ever.

    >>> reached_in([30.0, 1.5, 4.0]), reached_in([30.0, 9.0])
    (2, None)
    """
    return next((i for i, above in enumerate(course, 1) if above <= CLOSE), None)


def calibration_of(
    target: Target, split: Split, now: Tensor, course: Sequence[float], logit_scale: float
) -> Calibration:
    """What was aimed at and what was reached.

    Args:
        target: The target.
        split: What was to be forgotten.
        now: The log-odds of the true label of the forgotten samples now.
        course: By how many points they were above their targets in each epoch.
        logit_scale: What the logits were multiplied by in the end.
    """
    margins = target.margins[split.forget]
    wanted, confidence = margins.sigmoid(), now.sigmoid()
    few = 1 / len(confidence) + 1 / target.unseen
    # In class-wise forgetting it is certain what is to be left.
    uncertain = float((margins > -torch.inf).double().mean())
    wrong = (margins < 0) & margins.isfinite()
    return Calibration(
        target=100 * float(wanted.mean()),
        reached=100 * float(confidence.mean()),
        before=100 * float(target.before.mean()),
        chance=196 * math.sqrt(uncertain * target.variance * few),
        samples=len(confidence),
        unseen=target.unseen,
        random=target.random,
        class_wise=not uncertain,
        epochs=len(course),
        reached_in_epoch=reached_in(course),
        logit_scale=logit_scale,
        wrong=WrongTargets(int(wrong.sum()), float(margins[wrong].mean()), float(now[wrong].mean()))
        if wrong.any()
        else None,
    )
