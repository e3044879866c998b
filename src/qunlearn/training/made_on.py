"""The split that each network in memory was trained on, or forgot samples of."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from torch import nn

from qunlearn.data import Split

made_on: WeakKeyDictionary[nn.Module, Split] = WeakKeyDictionary()
"""Filled by `train` and `forget`; read by functions that need samples for a network."""
