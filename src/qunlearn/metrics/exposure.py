"""Checks whether held-out data looks like data that the model was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

CERTAIN = 0.01
"""Significance level of the rank tests."""
SWAPPED = 0.001
"""Significance level of the verdict that two lists were swapped."""


Reason = Literal["no retained class", "no test part", "not memorised", "few samples"]
"""Why nothing can be told: no held-out sample is of a class that was trained on; there is no test
part; the network is no more confident on trained samples than on test samples; or the held-out
samples are too few."""


@dataclass(frozen=True)
class Exposure:
    """The verdict of comparing the confidence on the three parts.

    Attributes:
        verdict: What the held-out part looks like.
        samples: How many held-out samples there are.
        reason: Why nothing can be told, if so.
    """

    verdict: Literal["unseen", "trained on", "mixed", "swapped", "cannot be told"]
    samples: int
    reason: Reason | None = None


def exposure(train: Tensor, held_out: Tensor, test: Tensor) -> Exposure:
    """Compare confidences (see `margin`) on the trained, the held-out and the test part.

    A network is more confident on samples that it was trained on. One-sided rank tests at 1 % show
    whether the confidence on held-out samples is above that on test samples, and below that on
    trained samples; each of the four outcomes has a verdict. There is no verdict if the trained
    part is not distinguishable from the test part, or the held-out part from neither. The lists
    were swapped if the confidence on held-out samples exceeds that on both other parts, which do
    not differ: no generalisation explains that.
    """
    count = len(held_out)
    if not count:
        return Exposure("cannot be told", count, "no retained class")
    above_both = all(_p_value(held_out, other) <= SWAPPED for other in (train, test) if len(other))
    if above_both and not (len(test) and _p_value(train, test) <= CERTAIN):
        return Exposure("swapped", count)
    if not len(test):
        return Exposure("cannot be told", count, "no test part")
    if _p_value(train, test) > CERTAIN:
        return Exposure("cannot be told", count, "not memorised")
    above_test = _p_value(held_out, test) <= CERTAIN
    below_train = _p_value(train, held_out) <= CERTAIN
    if above_test:
        return Exposure("mixed" if below_train else "trained on", count)
    if below_train:
        return Exposure("unseen", count)
    return Exposure("cannot be told", count, "few samples")


def _p_value(higher: Tensor, other: Tensor) -> float:
    """The p-value of the one-sided Mann-Whitney test that `higher` lies above `other`."""
    from scipy.stats import mannwhitneyu

    test = mannwhitneyu(np.asarray(higher), np.asarray(other), alternative="greater")
    return float(test.pvalue)
