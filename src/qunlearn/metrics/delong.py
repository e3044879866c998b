"""Intervals of the AUC, and of the difference of two AUCs on the same samples (DeLong 1988)."""

from __future__ import annotations

import math
from statistics import NormalDist

import torch
from torch import Tensor

from qunlearn.metrics.bootstrap import Interval


def auc_interval(positive: Tensor, negative: Tensor, level: float = 0.05) -> Interval:
    """The interval of the AUC, at confidence 1 - `level`.

    >>> interval = auc_interval(torch.arange(100.0), torch.arange(100.0))
    >>> round(interval.low, 2), round(interval.high, 2)
    (0.42, 0.58)
    """
    rises, falls = _components(positive, negative)
    return _interval(rises, falls, level)


def auc_difference_interval(positive: Tensor, negative: Tensor, level: float = 0.05) -> Interval:
    """The interval of the difference of two AUCs, the first column's less the second's.

    Args:
        positive: Two scores of each positive, as columns: what one sample has in both stays paired.
        negative: The same of each negative.
        level: The probability that the interval misses the true difference.

    Example:
        >>> scores = torch.stack([torch.arange(50.0), torch.arange(50.0)], 1)
        >>> auc_difference_interval(scores, scores)
        Interval(low=0.0, high=0.0)
    """
    first, second = (
        _components(positive[:, i].contiguous(), negative[:, i].contiguous()) for i in (0, 1)
    )
    return _interval(first[0] - second[0], first[1] - second[1], level)


def _components(positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """For each positive the share of negatives below it; for each negative that of those above."""
    return _below(positive, negative), 1 - _below(negative, positive)


def _below(values: Tensor, others: Tensor) -> Tensor:
    ordered, values = others.double().sort().values, values.double()
    below = torch.searchsorted(ordered, values, right=False)
    return (below + torch.searchsorted(ordered, values, right=True)) / (2 * len(others))


def _interval(first: Tensor, second: Tensor, level: float) -> Interval:
    middle = float(first.double().mean())
    variance = sum(float(x.double().var()) / len(x) if len(x) > 1 else 0.0 for x in (first, second))
    half = NormalDist().inv_cdf(1 - level / 2) * math.sqrt(variance)
    return Interval(middle - half, middle + half)
