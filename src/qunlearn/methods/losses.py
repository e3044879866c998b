"""Loss functions that methods share."""

from __future__ import annotations

from torch import Tensor


def negative_entropy(logits: Tensor) -> Tensor:
    r"""The mean of $\sum_k p_k \log p_k$ over the batch: $-\log K$ where all classes are equal.

    Example:
        >>> import torch
        >>> negative_entropy(torch.zeros(2, 4)).exp()
        tensor(0.2500)
    """
    return negative_entropies(logits).mean()


def negative_entropies(logits: Tensor) -> Tensor:
    r"""Each sample's $\sum_k p_k \log p_k$."""
    log_p = logits.log_softmax(dim=1)
    return (log_p.exp() * log_p).sum(dim=1)
