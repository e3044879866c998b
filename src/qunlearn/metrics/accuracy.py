"""Accuracy."""

from __future__ import annotations

from torch import Tensor


def accuracy(logits: Tensor, labels: Tensor) -> float:
    r"""The percentage of samples whose largest logit is that of the true class.

    $100 \cdot \frac{1}{n} \sum_i [\arg\max_k z_{ik} = y_i]$

    Example:
        >>> import torch
        >>> accuracy(torch.tensor([[2.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 0]))
        50.0
    """
    if len(logits) != len(labels):
        raise ValueError(f"{len(logits)} predictions for {len(labels)} labels; give one for each.")
    if not len(labels):
        raise ValueError("There is no sample to measure accuracy on.")
    return 100.0 * (logits.argmax(1) == labels).double().mean().item()
