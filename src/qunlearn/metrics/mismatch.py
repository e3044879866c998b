"""Checks whether a network gets inputs and labels as it did in training.

All checks use samples that it was trained on: there any trained network beats guessing, however
badly it generalises.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

CERTAIN = 0.01
"""Significance level: the probability of a false alarm."""


def guesses(logits: Tensor, labels: Tensor) -> bool:
    """Whether a network does no better than guessing on samples that it was trained on.

    True if its accuracy is not above that of predictions independent of the labels (binomial test
    at 1 %), and is below the midpoint between that and 100 % (also at 1 %). With few samples the
    result is False.

    >>> labels = torch.arange(100) % 10
    >>> guesses(torch.eye(10)[labels], labels), guesses(torch.eye(10)[labels * 0], labels)
    (False, True)
    """
    from scipy.stats import binom

    answers, count, classes = logits.argmax(dim=1), len(labels), logits.shape[1]
    shares = [torch.bincount(each, minlength=classes) / count for each in (answers, labels)]
    chance = float((shares[0] * shares[1]).sum())
    right = int((answers == labels).sum())
    above = binom.sf(right - 1, count, chance)
    below = binom.cdf(right, count, (1 + chance) / 2)
    return bool(above > CERTAIN >= below)


def halves_errors(errors: int, errors_otherwise: int, ways: int = 1) -> bool:
    """Whether another way of use makes less than half as many errors, at 1 % significance.

    Args:
        errors: Number of errors in the current use.
        errors_otherwise: Number of errors in the other use, on as many samples.
        ways: Number of alternatives tried, for the Bonferroni correction.

    >>> halves_errors(90, 5), halves_errors(90, 40), halves_errors(4, 0)
    (True, False, False)
    """
    from scipy.stats import binom

    # With exactly half as many, a third of all errors would be those of the other use.
    return bool(binom.cdf(errors_otherwise, errors + errors_otherwise, 1 / 3) <= CERTAIN / ways)


def best_order(logits: Tensor, labels: Tensor) -> tuple[list[int], int]:
    """The most likely class of each output, and the number of errors with that order.

    Errors are cross-validated: those on each half use the order fitted on the other half.

    >>> labels = torch.arange(60) % 3
    >>> best_order(torch.eye(3)[(labels + 1) % 3], labels)
    ([2, 0, 1], 0)
    """
    answers, classes = logits.argmax(dim=1), logits.shape[1]
    # A random half, because every other sample may be of one class.
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
    order: list[int] = linear_sum_assignment(table, maximize=True)[1].tolist()
    return order
