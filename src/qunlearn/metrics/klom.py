"""KLoM: the KL divergence between unlearned and retrained networks' margins, sample by sample."""

from __future__ import annotations

import math

import torch
from torch import Tensor

BINS = 20
"""Bins of a histogram over the range of both groups."""
FLOOR = 1e-5
"""The least probability of a bin, so that the divergence is finite."""


def klom(unlearned: Tensor, retrained: Tensor, bins: int = BINS, floor: float = FLOOR) -> Tensor:
    r"""$D_{KL}(\text{unlearned} \,\|\, \text{retrained})$ of each sample's margins, in nats.

    As in Georgiev et al. 2024 ("Attribute-to-Delete"): histograms of equal bins over the range of
    both groups. They have a hundred networks in each; with a handful the histograms hardly overlap
    even if nothing differs, and `gaussian_klom` has to do.

    Args:
        unlearned: The margins (`margin`) of networks that unlearned the sample, networks × samples.
        retrained: The same of networks that never saw it.
        bins: How many bins.
        floor: The least probability of a bin.

    Example:
        >>> same = torch.tensor([[0.0], [1.0], [2.0]])
        >>> klom(same, same), klom(same + 9, same).round()
        (tensor([0.], dtype=torch.float64), tensor([10.], dtype=torch.float64))
    """
    both = torch.cat([unlearned, retrained]).double()
    low, width = both.amin(0), (both.amax(0) - both.amin(0)).clamp_min(1e-12) / bins
    p, q = (
        torch.nn.functional.one_hot(
            ((group.double() - low) / width).long().clamp_max(bins - 1), bins
        )
        .double()
        .mean(0)
        .clamp_min(floor)
        for group in (unlearned, retrained)
    )
    p, q = p / p.sum(1, keepdim=True), q / q.sum(1, keepdim=True)
    return (p * (p / q).log()).sum(1)


def gaussian_klom(unlearned: Tensor, retrained: Tensor) -> float:
    r"""The mean over the samples of KLoM between Gaussians, for a few networks; in nats.

    $\log\frac{\sigma_r}{\sigma_u} + \frac{\sigma_u^2 + (\mu_u - \mu_r)^2}{2\sigma_r^2} - \frac12$.
    Each sample has means of its own; each group has one variance, pooled over the samples, because
    a few networks cannot estimate one for each. What the means differ by chance is subtracted, so
    that the figure is about 0 where nothing differs; it may be slightly below.

    Args:
        unlearned: Margins, networks × samples; NaN where a network did not unlearn the sample.
        retrained: The same, NaN where a network was trained on the sample.

    Example:
        >>> values = torch.randn(400, 50, generator=torch.Generator().manual_seed(0))
        >>> round(gaussian_klom(values[:200] + 1, values[200:]), 1)
        0.5
    """
    (mean_u, var_u, count_u), (mean_r, var_r, count_r) = map(moments, (unlearned, retrained))
    if var_u <= 0 or var_r <= 0:
        raise ValueError("The networks of a group agree exactly; give networks of other seeds.")
    both = (count_u > 0) & (count_r > 0)
    chance = var_u / count_u[both] + var_r / count_r[both]
    squared = float(((mean_u - mean_r)[both].square() - chance).mean())
    return 0.5 * math.log(var_r / var_u) + (var_u + squared) / (2 * var_r) - 0.5


def moments(values: Tensor) -> tuple[Tensor, float, Tensor]:
    """The mean of each column, the variance pooled over the columns, and the counts; without NaN.

    >>> mean, variance, count = moments(torch.tensor([[1.0, torch.nan], [3.0, 5.0]]))
    >>> mean.tolist(), variance, count.tolist()
    ([2.0, 5.0], 2.0, [2, 1])
    """
    values = values.double()
    count, mean = (~values.isnan()).sum(0), values.nanmean(0)
    freedom = int((count - 1).clamp_min(0).sum())
    squares = float((values - mean).square().nansum())
    return mean, squares / freedom if freedom else math.nan, count
