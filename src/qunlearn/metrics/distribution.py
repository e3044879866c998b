"""Metrics of distributions: entropy, divergence, agreement, and the distance of two samples."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def true_confidence(logits: Tensor, labels: Tensor) -> Tensor:
    r"""The probability of the true class, $p_y$.

    >>> true_confidence(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
    tensor([0.5000], dtype=torch.float64)
    """
    return logits.double().softmax(1)[torch.arange(len(labels)), labels]


def entropy(logits: Tensor) -> Tensor:
    r"""$-\sum_k p_k \log p_k$, in nats.

    >>> entropy(torch.zeros(1, 4)).exp()
    tensor([4.], dtype=torch.float64)
    """
    log_p = logits.double().log_softmax(1)
    return -(log_p.exp() * log_p).sum(1)


def modified_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    r"""$-(1-p_y) \log p_y - \sum_{k \ne y} p_k \log(1-p_k)$ (Song and Mittal 2021).

    Zero at full confidence in the true label; unbounded at full confidence in another.

    >>> modified_entropy(torch.tensor([[0.8, 0.2]]).log(), torch.tensor([0]))
    tensor([0.0893], dtype=torch.float64)
    """
    log_p = logits.double().log_softmax(1)
    p, rows = log_p.exp(), torch.arange(len(labels))
    # For the largest p_k, 1 - p_k is the sum of the others: the difference would lose precision.
    top = log_p.argmax(1)
    others = log_p.clone()
    others[rows, top] = -torch.inf
    log_rest = torch.log1p(-p)
    log_rest[rows, top] = others.logsumexp(1)
    products = p * log_rest
    products[rows, labels] = log_rest[rows, labels].exp() * log_p[rows, labels]
    return -products.sum(1)


def jensen_shannon(first: Tensor, second: Tensor) -> Tensor:
    r"""$\frac12 KL(p \| m) + \frac12 KL(q \| m)$ with $m = \frac{p+q}2$, between 0 and $\log 2$.

    >>> jensen_shannon(torch.tensor([[99.0, 0.0]]), torch.tensor([[0.0, 99.0]])).exp()
    tensor([2.], dtype=torch.float64)
    """
    log_p, log_q = (logits.double().log_softmax(1) for logits in (first, second))
    log_m = torch.logaddexp(log_p, log_q) - torch.log(torch.tensor(2.0, dtype=torch.float64))
    halves = [(log.exp() * (log - log_m)).sum(1) / 2 for log in (log_p, log_q)]
    return (halves[0] + halves[1]).clamp_min(0)


def agreement(first: Tensor, second: Tensor) -> float:
    """The percentage of samples for which two models predict the same class.

    >>> agreement(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 2.0]]))
    50.0
    """
    return 100.0 * (first.argmax(1) == second.argmax(1)).double().mean().item()


def ks_distance(first: Tensor, second: Tensor) -> float:
    """The Kolmogorov-Smirnov distance of two samples: the largest gap of their distributions.

    >>> ks_distance(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([1.0, 2.0, 3.0, 9.0]))
    0.25
    """
    both = torch.cat([first, second]).double().sort().values
    shares = [
        torch.searchsorted(each.double().sort().values, both, right=True) / len(each)
        for each in (first, second)
    ]
    return float((shares[0] - shares[1]).abs().max())


def ks_chance(first: int, second: int) -> float:
    """The distance that two samples of these sizes from one distribution exceed in 1 % of cases.

    >>> round(ks_chance(450, 500), 3)
    0.106
    """
    return min(1.0, 1.6276 * math.sqrt(1 / first + 1 / second))
