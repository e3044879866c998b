"""Membership inference: predicts from a model's outputs whether a sample was trained on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qunlearn.metrics import svm
from qunlearn.metrics.distribution import entropy, modified_entropy, true_confidence

FEATURES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "confidence": true_confidence,
    "correctness": lambda logits, labels: (logits.argmax(1) == labels).double(),
    "entropy": lambda logits, labels: entropy(logits),
    "modified entropy": modified_entropy,
}
"""The feature that each attack uses."""

REPORTED = "confidence"
"""The attack that is reported as MIA."""


NARROWEST, WIDEST = 1e-2, 50.0
"""Scores over another range are left to scikit-learn: over a wider range the cost of our solver
grows, over a narrower one decisions differ by less than its tolerance. Equal scores are fine."""


WEAK = 55.0
"""Minimum accuracy, in percent, of an informative attack; see `least_accuracy`."""

BY_CHANCE = 0.05
"""The probability that an uninformative attack passes `least_accuracy`."""


class Attack(NamedTuple):
    """The result of an attack on the forget samples, and its accuracy; both in percent."""

    efficacy: float
    """The percentage of forget samples that it classifies as non-members."""
    accuracy: float
    """Its balanced accuracy on its own training samples; guessing reaches 50."""


def mia_efficacy(
    member_scores: Tensor, nonmember_scores: Tensor, forget_scores: Tensor, *, exact: bool = False
) -> float:
    """The percentage of forget samples that an attack classifies as non-members.

    The attack is an SVC (rbf, C = 3, gamma 1) trained to separate members from non-members by one
    score each. There is no "low is good": the target is what a retrained model gets.

    Args:
        member_scores: One number for each sample that was trained on, such as `true_confidence`.
        nonmember_scores: The same for samples never seen; as many, or the attack is one-sided.
        forget_scores: The same for the samples that were to be forgotten.
        exact: Use scikit-learn's SVC. The default solves the same problem, at 20,000 scores more
            than 50 times faster (and takes scikit-learn's for scores that range over more than 50
            or less than 0.01, as those of hardly any network do).

    Example:
        >>> member, other = torch.tensor([0.9, 0.95, 1.0]), torch.tensor([0.1, 0.3, 0.6])
        >>> mia_efficacy(member, other, torch.tensor([0.2, 0.3, 0.4, 0.97]))
        75.0
    """
    return attack(member_scores, nonmember_scores, forget_scores, exact=exact).efficacy


def attack(
    member_scores: Tensor, nonmember_scores: Tensor, forget_scores: Tensor, *, exact: bool = False
) -> Attack:
    """As `mia_efficacy`, with the attack's own accuracy.

    Example:
        >>> alike = torch.tensor([0.9, 0.9])
        >>> attack(alike, alike, alike).accuracy
        50.0
    """
    members, others, forget = (
        _numbers(scores, name)
        for scores, name in (
            (member_scores, "member_scores"),
            (nonmember_scores, "nonmember_scores"),
            (forget_scores, "forget_scores"),
        )
    )
    everything = np.concatenate([members, others, forget])
    width = np.ptp(everything)
    if exact or width > WIDEST or 0 < width < NARROWEST:
        return _by_svc(members[:, None], others[:, None], forget[:, None])
    machine = svm.fit(members, others, everything.min(), everything.max())
    return _result(*(machine.decide(part) < 0 for part in (members, others, forget)))


def vector_efficacy(members: Tensor, nonmembers: Tensor, forget: Tensor) -> float:
    """As `mia_efficacy`, by an attack on the complete probability vector.

    The arguments are logits. This attack uses scikit-learn's SVC and takes some seconds.
    """
    parts = (logits.double().softmax(1).numpy() for logits in (members, nonmembers, forget))
    return _by_svc(*parts).efficacy


def weakest_attack(accuracies: Iterable[float | None]) -> float | None:
    """The lowest accuracy of MIA's attack over several networks; None if none is known.

    >>> weakest_attack([71.0, 52.5, None])
    52.5
    """
    return min((each for each in accuracies if each is not None), default=None)


def least_accuracy(samples: int) -> float:
    """The minimum accuracy, in percent, at which an attack is better than guessing.

    An attack's accuracy is measured on its own training samples. If members and non-members have
    the same distribution, the best threshold between n of each reaches 50 (1 + D) %. D is the
    Kolmogorov-Smirnov distance, which exceeds √(-ln(p/2)/n) with probability p by chance.

    Args:
        samples: Number of members, and of non-members, that the attack was trained on.

    Example:
        >>> [round(least_accuracy(samples), 1) for samples in (30, 100, 1000)]
        [67.5, 59.6, 55.0]
    """
    return max(WEAK, 50 * (1 + math.sqrt(-math.log(BY_CHANCE / 2) / max(samples, 1))))


def draw(count: int, size: int, generator: np.random.Generator) -> Tensor:
    """Draw `size` of the first `count` integers without replacement, in ascending order."""
    return torch.from_numpy(np.sort(generator.permutation(count)[:size]))


def _by_svc(
    members: NDArray[np.float64], others: NDArray[np.float64], forget: NDArray[np.float64]
) -> Attack:
    from sklearn.svm import SVC

    x = np.concatenate([members, others])
    y = np.repeat([1, 0], [len(members), len(others)])
    machine = SVC(kernel="rbf", C=3.0, gamma="auto").fit(x, y)
    return _result(*(machine.predict(part) == 0 for part in (members, others, forget)))


def _result(
    members: NDArray[np.bool_], others: NDArray[np.bool_], forget: NDArray[np.bool_]
) -> Attack:
    """The result of an attack, from which samples of each part it classifies as non-members."""
    right = 1 - members.mean() + others.mean()
    return Attack(float(100 * forget.mean()), float(50 * right))


def _numbers(scores: Tensor, name: str) -> NDArray[np.float64]:
    numbers: NDArray[np.float64] = torch.as_tensor(scores).double().numpy()
    if numbers.ndim != 1 or not len(numbers):
        raise ValueError(
            f"{name} has the shape {numbers.shape}; give one score per sample, at least one."
        )
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} has NaN or infinite entries; give finite scores.")
    return numbers
