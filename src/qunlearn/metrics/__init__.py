"""Measurements: pure functions of logits, labels and split."""

from qunlearn.metrics.accuracy import accuracy

__all__ = ["accuracy"]
