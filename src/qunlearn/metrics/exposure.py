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


@dataclass(frozen=True)
class Exposure:
    """The verdict of comparing the confidence on the three parts, and a message."""

    verdict: Literal["unseen", "trained on", "mixed", "swapped", "cannot be told"]
    sentence: str


def exposure(train: Tensor, held_out: Tensor, test: Tensor) -> Exposure:
    """Compare confidences (see `margin`) on the trained, the held-out and the test part.

    A network is more confident on samples that it was trained on. One-sided rank tests at 1 % show
    whether the confidence on held-out samples is above that on test samples, and below that on
    trained samples; each of the four outcomes has a verdict. There is no verdict if the trained
    part is not distinguishable from the test part, or the held-out part from neither. The lists
    were swapped if the confidence on held-out samples exceeds that on both other parts, which do
    not differ: no generalisation explains that.
    """
    if not len(held_out):
        return _inconclusive("no held-out sample is of a class that was trained on")
    above_both = all(_p_value(held_out, other) <= SWAPPED for other in (train, test) if len(other))
    if above_both and not (len(test) and _p_value(train, test) <= CERTAIN):
        return Exposure("swapped", _swapped(train, held_out, test))
    if not len(test):
        return _inconclusive("there is no test part to compare with")
    if _p_value(train, test) > CERTAIN:
        return _inconclusive(
            "the network is not more confident on the training part than on the test part"
        )
    above_test = _p_value(held_out, test) <= CERTAIN
    below_train = _p_value(train, held_out) <= CERTAIN
    if below_train and not above_test:
        return Exposure(
            "unseen", "The held-out data looks unseen: confidence on it is as on the test part."
        )
    if above_test and not below_train:
        return Exposure(
            "trained on",
            "The held-out data looks trained on: confidence on it is as on the training part, and "
            "higher than on the test part; name data that the network never saw with --held-out.",
        )
    if above_test:
        return Exposure(
            "mixed",
            "Some of the held-out data may have been trained on: confidence on it is higher than "
            "on the test part, and lower than on the training part.",
        )
    return _inconclusive(
        f"{len(held_out)} samples are too few to distinguish them from either part"
    )


def _swapped(train: Tensor, held_out: Tensor, test: Tensor) -> str:
    parts = {"held-out": held_out, "trained": train, "test": test}
    confidences = ", ".join(
        f"{100 * float(margins.sigmoid().mean()):.1f} % on {name} samples"
        for name, margins in parts.items()
        if len(margins)
    )
    return (
        "The lists look swapped: confidence on the held-out samples is higher than on the trained "
        f"ones (mean confidence in the true label: {confidences}); swap --trained-on and "
        "--held-out, or hold out samples of the same kind as the trained ones."
    )


def _inconclusive(reason: str) -> Exposure:
    return Exposure("cannot be told", f"Held-out data cannot be checked: {reason}.")


def _p_value(higher: Tensor, other: Tensor) -> float:
    """The p-value of the one-sided Mann-Whitney test that `higher` lies above `other`."""
    from scipy.stats import mannwhitneyu

    test = mannwhitneyu(np.asarray(higher), np.asarray(other), alternative="greater")
    return float(test.pvalue)
