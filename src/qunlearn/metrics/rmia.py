"""RMIA: how much more a network favours a sample than it favours samples of the population."""

from __future__ import annotations

import torch
from torch import Tensor

OFFLINE = 0.3
"""How far references that never saw a sample stand for those that did: the paper's CIFAR-10 value
of `a` (Zarifzadeh et al. 2024)."""


def rmia(samples: Tensor, population: Tensor, gamma: float = 1.0) -> Tensor:
    r"""The share of the population that a sample dominates.

    $s(x) = P_z\left[\frac{p(x|\theta)/p(x)}{p(z|\theta)/p(z)} \ge \gamma\right]$ (Zarifzadeh et al.
    2024). A member scores near 1; for a sample like the population, s is uniform.

    Args:
        samples: The ratio $p(x|\theta)/p(x)$ of each sample; see `offline_ratio`.
        population: The same of samples that no network was trained on.
        gamma: By what factor a sample must exceed another.

    Example:
        >>> rmia(torch.tensor([2.0, 0.5]), torch.tensor([0.4, 1.0, 1.5, 2.0]))
        tensor([1.0000, 0.2500], dtype=torch.float64)
    """
    if not len(population):
        raise ValueError("The population is empty; give at least one sample.")
    ordered = (gamma * population.double()).sort().values
    below = torch.searchsorted(ordered, samples.double().contiguous(), right=True)
    return below.double() / len(population)


def offline_ratio(confidence: Tensor, references: Tensor, a: float = OFFLINE) -> Tensor:
    r"""$p(x|\theta)/p(x)$, with $p(x) = \frac12((1 + a)\,\bar p_{out}(x) + 1 - a)$.

    Args:
        confidence: The audited network's confidence in the true label of each sample.
        references: That of networks that never saw the sample, networks × samples; NaN elsewhere.
        a: How far they stand for networks that did.

    Example:
        >>> offline_ratio(torch.tensor([1.0]), torch.tensor([[0.2], [0.4]]), a=0.0)
        tensor([1.5385], dtype=torch.float64)
    """
    mean = references.double().nanmean(0)
    return confidence.double() / (((1 + a) * mean + 1 - a) / 2)
