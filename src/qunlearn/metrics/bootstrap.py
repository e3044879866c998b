"""Bootstrap intervals of any statistic of samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from qunlearn.data.draw import generator

DRAWS = 1000
"""Resamples of an interval."""


@dataclass(frozen=True)
class Interval:
    """The ends of an interval.

    >>> Interval(0.4, 0.6).contains(0.5)
    True
    """

    low: float
    high: float

    def contains(self, value: float) -> bool:
        """Whether a value lies within the interval, its ends included."""
        return self.low <= value <= self.high


def bootstrap_interval(
    statistic: Callable[..., float],
    *samples: Tensor,
    level: float = 0.05,
    draws: int = DRAWS,
    seed: int = 0,
) -> Interval:
    r"""The percentile interval of a statistic, at confidence $1 - $ `level`.

    Each sample is resampled by rows, with replacement and independently of the other samples.
    Values that belong to one row, such as two networks' outputs for it, stay together: give them
    as columns of one tensor.

    Args:
        statistic: A function of the samples, in their order.
        *samples: Tensors with a row for each observation.
        level: The probability that the interval misses the true value, half of it on each side.
        draws: How many resamples.
        seed: Draws the resamples.

    Example:
        >>> values = torch.arange(100.0)
        >>> interval = bootstrap_interval(lambda x: float(x.mean()), values)
        >>> interval.contains(49.5), round(interval.high - interval.low)
        (True, 11)
    """
    if not samples or not all(len(sample) for sample in samples):
        raise ValueError("A sample is empty; give at least one row of each.")
    if not 0 < level < 1:
        raise ValueError(f"The level is {level:g}; choose one between 0 and 1.")
    chance = generator("bootstrap", seed)
    values = torch.tensor(
        [
            statistic(*(x[torch.from_numpy(chance.integers(0, len(x), len(x)))] for x in samples))
            for _ in range(draws)
        ],
        dtype=torch.float64,
    )
    low, high = values.quantile(torch.tensor([level / 2, 1 - level / 2], dtype=torch.float64))
    return Interval(float(low), float(high))
