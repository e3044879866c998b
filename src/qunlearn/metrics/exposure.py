"""Whether data that a model is said never to have seen looks like data it was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

CERTAIN = 0.01
"""The chance of a false alarm that a finding may have."""
SWAPPED = 0.001
"""The same, of the finding that two lists were swapped."""


@dataclass(frozen=True)
class Exposure:
    """What a comparison of the three parts' confidences says."""

    verdict: Literal["unseen", "trained on", "mixed", "swapped", "cannot be told"]
    sentence: str


def exposure(train: Tensor, held_out: Tensor, test: Tensor) -> Exposure:
    """Compare confidences (see `margin`) on the trained, the held-out and the test part.

    A network is surer of what it was trained on. One-sided rank tests at 1 % tell whether the
    held-out samples are surer than test samples, and whether they are less sure than the trained
    ones; each of the four outcomes has its verdict. Where the trained part itself cannot be told
    from the test part, or the held-out samples from neither, nothing can be said. Held-out samples
    that are surer than the trained ones, and than test samples, of which the trained ones are no
    surer, were swapped with them: no honest list does that, however a network generalises.
    """
    if not len(held_out):
        return _cannot("there is none of a class that was trained on")
    above_both = all(_chance(held_out, other) <= SWAPPED for other in (train, test) if len(other))
    if above_both and not (len(test) and _chance(train, test) <= CERTAIN):
        return Exposure("swapped", _swapped(train, held_out, test))
    if not len(test):
        return _cannot("there is no test part to compare with")
    if _chance(train, test) > CERTAIN:
        return _cannot("the model is no surer of what it was trained on than of the test part")
    above_test = _chance(held_out, test) <= CERTAIN
    below_train = _chance(train, held_out) <= CERTAIN
    if below_train and not above_test:
        return Exposure("unseen", "Held-out data looks unseen, as the test part does.")
    if above_test and not below_train:
        return Exposure(
            "trained on",
            "The held-out data looks trained on: the network is as sure of it as of the training "
            "part, and surer than of the test part; name data that it never saw with --held-out.",
        )
    if above_test:
        return Exposure(
            "mixed",
            "The model is surer of the held-out data than of the test part, though less than of "
            "the training part: some of it may have been trained on.",
        )
    return _cannot(f"{len(held_out)} samples are too few to tell them from either part")


def _swapped(train: Tensor, held_out: Tensor, test: Tensor) -> str:
    parts = {"held-out": held_out, "trained": train, "test": test}
    sure = ", ".join(
        f"{100 * float(margins.sigmoid().mean()):.1f} % on {name} samples"
        for name, margins in parts.items()
        if len(margins)
    )
    return (
        "The lists look swapped: the network is surer of the held-out samples than of those that "
        f"it was trained on (mean confidence in the true label: {sure}); swap --trained-on and "
        "--held-out, or hold out samples of the same kind as the trained ones."
    )


def _cannot(reason: str) -> Exposure:
    return Exposure("cannot be told", f"Held-out data cannot be checked: {reason}.")


def _chance(surer: Tensor, other: Tensor) -> float:
    """The chance that `surer` lies so far above `other` by accident (Mann-Whitney)."""
    from scipy.stats import mannwhitneyu

    test = mannwhitneyu(np.asarray(surer), np.asarray(other), alternative="greater")
    return float(test.pvalue)
