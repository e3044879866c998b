"""Whether a network gets its inputs and labels as it was trained on them.

Everything is judged on samples that it was trained on, where any network that learned is right more
often than by guessing, however badly it generalises.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

CERTAIN = 0.01
"""The chance of a false alarm that a finding may have."""


def guesses(logits: Tensor, labels: Tensor) -> bool:
    """Whether a network does no better than guessing on samples that it was trained on.

    It is right no more often than answers independent of the labels would be (not above that in a
    binomial test at 1 %), and less often than halfway from there to always (below that at 1 %). So
    with few samples nothing is said.

    >>> labels = torch.arange(100) % 10
    >>> guesses(torch.eye(10)[labels], labels), guesses(torch.eye(10)[labels * 0], labels)
    (False, True)
    """
    from scipy.stats import binom

    answers, count, classes = logits.argmax(dim=1), len(labels), logits.shape[1]
    shares = [torch.bincount(found, minlength=classes) / count for found in (answers, labels)]
    chance = float((shares[0] * shares[1]).sum())
    right = int((answers == labels).sum())
    above = binom.sf(right - 1, count, chance)
    below = binom.cdf(right, count, (1 + chance) / 2)
    return bool(above > CERTAIN >= below)


def halves_errors(errors: int, errors_otherwise: int, ways: int = 1) -> bool:
    """Whether a network makes less than half as many errors in another way, at 1 %.

    Args:
        errors: As it is used now.
        errors_otherwise: In the other way, on as many samples.
        ways: How many ways are tried; each then has a share of the chance of a false alarm.

    >>> halves_errors(90, 5), halves_errors(90, 40), halves_errors(4, 0)
    (True, False, False)
    """
    from scipy.stats import binom

    # With exactly half as many, a third of all errors would be made in the other way.
    return bool(binom.cdf(errors_otherwise, errors + errors_otherwise, 1 / 3) <= CERTAIN / ways)


def best_order(logits: Tensor, labels: Tensor) -> tuple[list[int], int]:
    """The class that each output most likely stands for, and the errors that are made with that.

    The errors on each half of the samples are made with the order that fits the other half.

    >>> labels = torch.arange(60) % 3
    >>> best_order(torch.eye(3)[(labels + 1) % 3], labels)
    ([2, 0, 1], 0)
    """
    answers, classes = logits.argmax(dim=1), logits.shape[1]
    # By chance, for every other sample may be of one class.
    half = torch.rand(len(labels), generator=torch.Generator().manual_seed(0)) < 0.5
    errors = 0
    for fitted, tried in ((half, ~half), (~half, half)):
        order = torch.tensor(_fitting(answers[fitted], labels[fitted], classes))
        errors += int((order[answers[tried]] != labels[tried]).sum())
    return _fitting(answers, labels, classes), errors


def _fitting(answers: Tensor, labels: Tensor, classes: int) -> list[int]:
    from scipy.optimize import linear_sum_assignment

    table = np.zeros((classes, classes))
    np.add.at(table, (answers.numpy(), labels.numpy()), 1)
    found: list[int] = linear_sum_assignment(table, maximize=True)[1].tolist()
    return found
