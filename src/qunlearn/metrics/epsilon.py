"""The unlearning challenge's ε: how well the best attack tells unlearned from retrained networks.

The definition of the NeurIPS 2023 competition (Triantafillou et al. 2024): for each sample, attacks
with one or two thresholds on the margin guess whether a network unlearned the sample or never saw
it; the best one's error rates bound ε from below.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qunlearn.data.draw import generator

DELTA = 1e-5
WIDTH = 0.5
"""Width of the competition's bins of ε."""

Floats = NDArray[np.float64]


def epsilon(unlearned: Tensor, retrained: Tensor, delta: float = DELTA) -> Tensor:
    """ε of each sample; infinite where an attack makes no error at all.

    An attack that never errs in one direction alone is left out, as the competition does: its ε
    would be infinite by chance.

    Args:
        unlearned: Margins, networks × samples; NaN where a network did not unlearn the sample.
        retrained: The same, NaN where a network was trained on the sample.
        delta: The δ of (ε, δ).

    Example:
        >>> epsilon(torch.tensor([[3.0], [4.0], [1.0]]), torch.tensor([[0.0], [2.0], [1.5]]))
        tensor([0.6931], dtype=torch.float64)
        >>> epsilon(torch.tensor([[3.0], [4.0]]), torch.tensor([[0.0], [2.0]]))
        tensor([inf], dtype=torch.float64)
    """
    columns = zip(unlearned.double().T.numpy(), retrained.double().T.numpy(), strict=True)
    values = [_epsilon(u[~np.isnan(u)], r[~np.isnan(r)], delta) for u, r in columns]
    return torch.tensor(values, dtype=torch.float64)


def _epsilon(unlearned: Floats, retrained: Floats, delta: float) -> float:
    if not len(unlearned) or not len(retrained):
        return math.nan
    values = np.concatenate([unlearned, retrained])
    order = np.argsort(values, kind="stable")
    is_unlearned = (order < len(unlearned)).astype(float)
    # Thresholds lie between different values; an attack takes what is between two of them.
    cuts = np.concatenate([[0], np.flatnonzero(np.diff(values[order])) + 1, [len(values)]])
    hits = np.concatenate([[0], np.cumsum(is_unlearned)])[cuts]
    alarms = np.concatenate([[0], np.cumsum(1 - is_unlearned)])[cuts]
    start, end = np.triu_indices(len(cuts), 1)
    tpr = (hits[end] - hits[start]) / len(unlearned)
    fpr = (alarms[end] - alarms[start]) / len(retrained)
    # The complement of each attack: what is outside.
    fnr, fpr = np.concatenate([1 - tpr, tpr]), np.concatenate([fpr, 1 - fpr])
    fnr, fpr = fnr.round(12), fpr.round(12)
    if np.any((fnr == 0) & (fpr == 0)):
        return math.inf
    usable = (fnr > 0) & (fpr > 0) & (fnr < 1 - delta) & (fpr < 1 - delta)
    fnr, fpr = fnr[usable], fpr[usable]
    if not len(fnr):
        return 0.0
    bounds = np.maximum(
        np.log(1 - delta - fpr) - np.log(fnr), np.log(1 - delta - fnr) - np.log(fpr)
    )
    return max(0.0, float(bounds.max()))


def largest_epsilon(unlearned: int, retrained: int, delta: float = DELTA) -> float:
    """The largest finite ε that so many networks can show; more needs more networks.

    >>> round(largest_epsilon(5, 5), 2), round(largest_epsilon(512, 512), 2)
    (1.39, 6.24)
    """
    if min(unlearned, retrained) < 2:
        return 0.0
    least_u, least_r = 1 / unlearned, 1 / retrained
    bounds = (1 - delta - least_u) / least_r, (1 - delta - least_r) / least_u
    return max(0.0, *map(math.log, bounds))


@cache
def chance_epsilon(unlearned: int, retrained: int, draws: int = 400, seed: int = 0) -> Tensor:
    """ε of draws in which nothing differs: attacks use ranks alone, so any distribution will do.

    >>> chance_epsilon(5, 5).median() > 0
    tensor(True)
    """
    values = generator("epsilon", seed).standard_normal((unlearned + retrained, draws))
    table = torch.from_numpy(values)
    return epsilon(table[:unlearned], table[unlearned:])


def challenge_score(epsilons: Tensor) -> float:
    r"""The competition's forgetting quality, at most 1: the mean of $2/2^n$, n the bin of ε.

    >>> challenge_score(torch.tensor([0.0, 0.6, torch.inf]))
    0.5
    """
    bins = torch.floor(epsilons.double() / WIDTH) + 1
    return float((2 / 2**bins).mean())
