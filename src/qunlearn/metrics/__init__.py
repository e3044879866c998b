"""Metrics: pure functions of logits and labels."""

from qunlearn.metrics.accuracy import accuracy
from qunlearn.metrics.confidence import margin
from qunlearn.metrics.distribution import (
    agreement,
    entropy,
    jensen_shannon,
    ks_chance,
    ks_distance,
    modified_entropy,
    true_confidence,
)
from qunlearn.metrics.epsilon import epsilon
from qunlearn.metrics.gap import average_gap, gaps, mean_interval, runtime_share
from qunlearn.metrics.klom import gaussian_klom, klom
from qunlearn.metrics.likelihood import likelihood_ratio
from qunlearn.metrics.lira import auc, lira, tpr_at_fpr
from qunlearn.metrics.membership import mia_efficacy, vector_efficacy
from qunlearn.metrics.rmia import rmia
from qunlearn.metrics.scores import PartScores, Scores, compare, measure, score

__all__ = [
    "PartScores",
    "Scores",
    "accuracy",
    "agreement",
    "auc",
    "average_gap",
    "compare",
    "entropy",
    "epsilon",
    "gaps",
    "gaussian_klom",
    "jensen_shannon",
    "klom",
    "ks_chance",
    "ks_distance",
    "likelihood_ratio",
    "lira",
    "margin",
    "mean_interval",
    "measure",
    "mia_efficacy",
    "modified_entropy",
    "rmia",
    "runtime_share",
    "score",
    "tpr_at_fpr",
    "true_confidence",
    "vector_efficacy",
]
