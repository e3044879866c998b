"""LiRA: compares confidence with that of reference models that never saw a sample."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def lira(values: Tensor, references: Tensor) -> Tensor:
    r"""The z-score of each sample's confidence against models that never saw it.

    $z_i = (v_i - \mu_i) / (\sigma \sqrt{1 + 1/m})$, with the mean $\mu_i$ over m reference models
    and one $\sigma$ pooled over the samples, because a few references cannot estimate one for each.
    For a model like the references, z has mean 0 and variance 1.

    Args:
        values: The audited model's logit-scaled confidence (`margin`) on each sample.
        references: The same of m reference models, m × samples; m is at least two.

    Example:
        >>> lira(torch.tensor([3.0, 0.0]), torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        tensor([2.4495, 0.0000], dtype=torch.float64)
    """
    if references.ndim != 2 or len(references) < 2:
        raise ValueError(
            f"The references have the shape {tuple(references.shape)}; give two models or more."
        )
    references, values = references.double(), values.double()
    count = len(references)
    mean = references.mean(0)
    variance = (references - mean).square().sum() / ((count - 1) * references.shape[1])
    if variance == 0:
        raise ValueError("The reference models are identical; give models of different seeds.")
    return (values - mean) / (variance * (1 + 1 / count)).sqrt()


def auc(positive: Tensor, negative: Tensor) -> float:
    """The probability that a positive exceeds a negative, ties counting half; 0.5 is chance.

    >>> auc(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0]))
    0.875
    """
    ordered = negative.double().sort().values
    below = torch.searchsorted(ordered, positive.double(), right=False)
    not_above = torch.searchsorted(ordered, positive.double(), right=True)
    return float((below + not_above).double().mean() / (2 * len(negative)))


def auc_half_width(samples: int) -> float:
    """The half-width of the 95 % interval of the AUC of two equal distributions, by sample size.

    >>> round(auc_half_width(450), 3), round(auc_half_width(1), 2)
    (0.038, 0.98)
    """
    return 1.96 * math.sqrt((2 * samples + 1) / 12) / samples


def tpr_at_fpr(positive: Tensor, negative: Tensor, rate: float = 0.01) -> float:
    """The share of positives above the threshold that at most `rate` of the negatives exceed.

    >>> tpr_at_fpr(torch.tensor([0.5, 3.0]), torch.arange(100) / 100, 0.01)
    0.5
    """
    allowed = int(rate * len(negative))
    threshold = negative.double().sort(descending=True).values[min(allowed, len(negative) - 1)]
    return float((positive.double() > threshold).double().mean())
