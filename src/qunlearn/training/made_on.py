"""Which split a network was trained or made to forget on, as long as both are in memory."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from torch import nn

from qunlearn.data import Split

made_on: WeakKeyDictionary[nn.Module, Split] = WeakKeyDictionary()
"""Filled by `train` and `forget`; what asks for samples of a network's kind finds some here."""
