"""U-LiRA: compares a margin with networks that unlearned a sample, and that never saw it."""

from __future__ import annotations

import math

from torch import Tensor

from qunlearn.metrics.klom import moments


def likelihood_ratio(values: Tensor, unlearned: Tensor, unseen: Tensor) -> Tensor:
    r"""The log-likelihood ratio of each sample's margin, as in LiRA (Carlini et al. 2022).

    $\Lambda = \frac{(v - \mu_o)^2}{2\sigma_o^2(1 + 1/n_o)} -
    \frac{(v - \mu_u)^2}{2\sigma_u^2(1 + 1/n_u)} + \log\frac{\sigma_o}{\sigma_u}$. Means are each
    sample's own; the variances are pooled over the samples, because a few networks cannot estimate
    one for each. The factors 1 + 1/n allow for the error of a mean of n networks: without them, a
    sample would look unlike the group that it is missing from itself.

    Args:
        values: The audited network's margin (`margin`) on each sample.
        unlearned: The same of networks that unlearned the sample, networks × samples; else NaN.
        unseen: The same of networks that never saw it; else NaN.

    Example:
        >>> import torch
        >>> shadow = torch.tensor([[-1.0, 1.0], [1.0, -1.0]])
        >>> likelihood_ratio(torch.tensor([4.0, 0.0]), shadow + 4, shadow).round(decimals=2)
        tensor([ 2.6700, -2.6700], dtype=torch.float64)
    """
    (mean_u, var_u, n_u), (mean_o, var_o, n_o) = map(moments, (unlearned, unseen))
    if var_u <= 0 or var_o <= 0:
        raise ValueError("The networks of a group agree exactly; give networks of other seeds.")
    values = values.double()
    from_u = (values - mean_u).square() / (2 * var_u * (1 + 1 / n_u))
    from_o = (values - mean_o).square() / (2 * var_o * (1 + 1 / n_o))
    return from_o - from_u + 0.5 * math.log(var_o / var_u)
