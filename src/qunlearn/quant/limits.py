"""Numbers that torch and C share; C gets them when it is compiled."""

SMALLEST_SCALE = 1e-10
"""Scales are kept above this, so that a collapsing one can neither divide by zero nor turn over."""

SHARPEST, SOFTEST = 1e-3, 0.5
"""The range of DSQ's α: below, the tanh is a step with no slope left; above, hardly bent at all."""
