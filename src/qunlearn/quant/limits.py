"""Constants that the torch and the C kernels share; C receives them at compile time."""

SMALLEST_SCALE = 1e-10
"""Lower bound of a scale: a collapsing scale can neither divide by zero nor change its sign."""

SHARPEST, SOFTEST = 1e-3, 0.5
"""The range of DSQ's α. Below it the tanh is a step without slope; above it nearly a line."""
