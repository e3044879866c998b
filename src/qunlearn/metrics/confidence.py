"""Confidence in the true label."""

from __future__ import annotations

import torch
from torch import Tensor


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    r"""The logit-scaled confidence in the true class: $\log \frac{p_y}{1 - p_y}$.

    It ranks samples as $p_y$ does, but still distinguishes those whose $p_y$ rounds to one.

    Example:
        >>> margin(torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1]))
        tensor([ 2., -2.])
    """
    rows = torch.arange(len(labels))
    others = logits.clone()
    others[rows, labels] = -torch.inf
    return logits[rows, labels] - others.logsumexp(dim=1)
