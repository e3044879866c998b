"""Whether data that a model is said never to have seen looks like data it was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

CERTAIN = 0.01
"""The chance of a false alarm that a finding may have."""


@dataclass(frozen=True)
class Exposure:
    """What a comparison of the three parts' confidences says."""

    verdict: Literal["unseen", "trained on", "mixed", "cannot be told"]
    sentence: str


def exposure(train: Tensor, held_out: Tensor, test: Tensor) -> Exposure:
    """Compare confidences (see `margin`) on the trained, the held-out and the test part.

    A network is surer of what it was trained on. If held-out samples are surer than test samples
    (one-sided rank test at 1 %), they are not unseen; if they cannot be told from the trained ones
    either, they were trained on. Where the trained part itself cannot be told from the test part,
    nothing can be said.
    """
    if not len(test):
        return Exposure(
            "cannot be told", "Held-out data cannot be checked: there is no test part to compare."
        )
    if _chance(train, test) > CERTAIN:
        return Exposure(
            "cannot be told",
            "Held-out data cannot be checked: the model is no surer of what it was trained on "
            "than of the test part.",
        )
    if _chance(held_out, test) > CERTAIN:
        return Exposure("unseen", "Held-out data looks unseen, as the test part does.")
    if _chance(train, held_out) > CERTAIN:
        return Exposure(
            "trained on",
            "The held-out data looks trained on: the model is as sure of it as of the training "
            "part, and surer than of the test part; name data that it never saw with --held-out.",
        )
    return Exposure(
        "mixed",
        "The model is surer of the held-out data than of the test part, though less than of the "
        "training part: some of it may have been trained on.",
    )


def _chance(surer: Tensor, other: Tensor) -> float:
    """The chance that `surer` lies so far above `other` by accident (Mann-Whitney)."""
    from scipy.stats import mannwhitneyu

    test = mannwhitneyu(np.asarray(surer), np.asarray(other), alternative="greater")
    return float(test.pvalue)
