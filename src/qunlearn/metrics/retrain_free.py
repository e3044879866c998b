"""Retrain-free divergence: how far forgetting is from what unseen samples look like."""

from __future__ import annotations

import torch
from torch import Tensor


def retrain_free_divergence(
    forgotten: Tensor, forgotten_labels: Tensor, unseen: Tensor, unseen_labels: Tensor
) -> float:
    r"""RF-JSD of LoTUS (Spartalis et al. 2025, arXiv 2503.18314), which needs no Retrain.

    The mean over classes c of the Jensen-Shannon divergence, in nats, between $\bar p_c$, the
    network's mean probabilities on forgotten samples of class c, and $\bar q_c$, those of the
    network *before* forgetting on unseen samples of that class. 0 is best. Classes without samples
    on either side are left out; NaN if none is left.

    Args:
        forgotten: Logits of the network that has forgotten, on the forgotten samples.
        forgotten_labels: Their labels.
        unseen: Logits of the network before forgetting, on samples that it never saw.
        unseen_labels: Their labels.

    Example:
        >>> sure, label = torch.tensor([[99.0, 0.0]]), torch.tensor([0])
        >>> round(retrain_free_divergence(sure.flip(1), label, sure, label), 4)  # log 2
        0.6931
    """
    common = sorted(set(forgotten_labels.tolist()) & set(unseen_labels.tolist()))
    if not common:
        return float("nan")
    divergences = []
    for label in common:
        p = forgotten[forgotten_labels == label].double().softmax(1).mean(0)
        q = unseen[unseen_labels == label].double().softmax(1).mean(0)
        middle = (p + q) / 2
        halves = [torch.xlogy(each, each / middle).nansum() / 2 for each in (p, q)]
        divergences.append(float(halves[0] + halves[1]))
    return sum(divergences) / len(divergences)
