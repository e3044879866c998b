"""The four figures of the field, and what stands beside them, from logits alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from qunlearn.metrics.accuracy import accuracy
from qunlearn.metrics.distribution import agreement, entropy, jensen_shannon, true_confidence
from qunlearn.metrics.gap import average_gap, gaps
from qunlearn.metrics.membership import FEATURES, attack, draw, vector_efficacy

Logits = Mapping[str, Tensor]
"""A model's outputs on each part of a split, by the part's name."""


def measure(logits: Logits, labels: Logits) -> dict[str, Any]:
    """What can be said of each part alone: accuracy (%), entropy, confidence in the truth."""
    return {
        part: {
            "accuracy": accuracy(rows, labels[part]),
            "samples": len(rows),
            "entropy": float(entropy(rows).mean()),
            "confidence": float(true_confidence(rows, labels[part]).mean()),
        }
        for part, rows in logits.items()
    }


def score(
    logits: Logits,
    labels: Logits,
    *,
    seed: int = 0,
    exact: bool = False,
    vector: bool = False,
) -> dict[str, Any]:
    """FA, RA, TA and MIA in percent, the further attacks, and how often MIA's own is right.

    Args:
        logits: Of the parts `forget`, `retain` and `test`, and any others.
        labels: The true labels of the same parts.
        seed: Which retained and which test samples the attacks learn from: as many of each as the
            smaller of the two parts has.
        exact: Attack with scikit-learn's SVC rather than the faster solver of the same problem.
        vector: Also attack by the whole vector of probabilities, which takes some seconds.
    """
    members, others = attack_samples(len(labels["retain"]), len(labels["test"]), seed)
    rows = {"retain": members, "test": others}
    picked = {p: (logits[p][rows[p]], labels[p][rows[p]]) for p in rows}
    picked["forget"] = logits["forget"], labels["forget"]
    found = {
        name: attack(
            *(feature(*picked[part]) for part in ("retain", "test", "forget")), exact=exact
        )
        for name, feature in FEATURES.items()
    }
    attacks = {name: each.efficacy for name, each in found.items()}
    if vector:
        attacks["vector"] = vector_efficacy(*(picked[p][0] for p in ("retain", "test", "forget")))
    accuracies = {
        name: accuracy(logits[part], labels[part])
        for name, part in (("FA", "forget"), ("RA", "retain"), ("TA", "test"))
    }
    reported = found["confidence"]
    return {
        **accuracies,
        "MIA": reported.efficacy,
        "attacks": attacks,
        "attack_accuracy": reported.accuracy,
    }


def attack_samples(retained: int, tested: int, seed: int) -> tuple[Tensor, Tensor]:
    """Which retained and which test samples an attack learns from: equally many, drawn by seed."""
    size = min(retained, tested)
    generator = np.random.default_rng([seed, retained, tested])
    return draw(retained, size, generator), draw(tested, size, generator)


def compare(
    scores: Mapping[str, Any], reference: Mapping[str, Any], logits: Logits, others: Logits
) -> dict[str, Any]:
    """How far a model is from a retrained one: AG, and part by part how alike predictions are."""
    parts = {
        part: {
            "agreement": agreement(rows, others[part]),
            "divergence": float(jensen_shannon(rows, others[part]).mean()),
        }
        for part, rows in logits.items()
    }
    return {"AG": average_gap(scores, reference), "gaps": gaps(scores, reference), "parts": parts}
