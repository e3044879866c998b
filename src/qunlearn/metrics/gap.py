"""The average gap to Retrain, with mean and confidence interval over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

SCORES = ("FA", "RA", "TA", "MIA")
"""The four metrics that the average gap is taken over."""


def gaps(scores: Mapping[str, float], reference: Mapping[str, float]) -> dict[str, float]:
    """The absolute difference of each of the four metrics.

    >>> gaps({"FA": 90, "RA": 99, "TA": 70, "MIA": 30}, {"FA": 80, "RA": 99, "TA": 72, "MIA": 34})
    {'FA': 10, 'RA': 0, 'TA': 2, 'MIA': 4}
    """
    return {name: abs(scores[name] - reference[name]) for name in SCORES}


def average_gap(scores: Mapping[str, float], reference: Mapping[str, float]) -> float:
    """AG: the mean absolute difference to a retrained model over FA, RA, TA and MIA.

    >>> average_gap({"FA": 90, "RA": 99, "TA": 70, "MIA": 30},
    ...             {"FA": 80, "RA": 99, "TA": 72, "MIA": 34})
    4.0
    """
    return sum(gaps(scores, reference).values()) / len(SCORES)


def runtime_share(seconds: float, retrain: float) -> float:
    """The run time of a method, in percent of Retrain's.

    >>> runtime_share(30, retrain=600)
    5.0
    """
    return 100 * seconds / retrain


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and the half-width of its 95 % interval (Student's t); NaN for a single value.

    >>> [round(number, 3) for number in mean_interval([1.0, 2.0, 3.0])]
    [2.0, 2.484]
    """
    from scipy.stats import t

    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return mean, math.nan
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (count - 1))
    return mean, float(t.ppf(0.975, count - 1)) * deviation / math.sqrt(count)


def half_width(percent: float, samples: int) -> float:
    """The 95 % margin of error of a percentage measured on this many samples.

    The distance to the farther end of Wilson's interval, which is not symmetric: at 0 of 10, the
    true percentage may be 28.

    >>> round(half_width(50, 100), 1), round(half_width(0, 10), 1)
    (9.6, 27.8)
    """
    low, high = wilson(percent, samples)
    return max(high - percent, percent - low)


def wilson(percent: float, samples: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a percentage measured on this many samples.

    >>> [round(end, 1) for end in wilson(100, 10)]
    [72.2, 100.0]
    """
    from scipy.stats import binomtest

    interval = binomtest(round(samples * percent / 100), samples).proportion_ci(method="wilson")
    return 100 * float(interval.low), 100 * float(interval.high)
