"""Weights are to the last bit what integer runtimes compute from their codes."""

import numpy as np
import pytest
import torch

from qunlearn.quant.quantizer import families


@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("name", ["lsq+", "lsq", "dsq", "pact"])
def test_rounded_weights_are_exactly_those_of_their_codes(name, bits, per_channel):
    torch.manual_seed(bits)
    weight = torch.randn(7, 5, 3, 3)
    quantizer = families[name].weights(bits, weight, per_channel, "published")
    quantizer.initialise(weight)
    with torch.no_grad():
        rounded = quantizer(weight)
    grid = quantizer.grid(weight)
    codes, scale, zero = (
        each.numpy().astype(np.float32)
        for each in (grid.codes(rounded), grid.scale, grid.zero_point)
    )
    # DequantizeLinear knows whole zero points; DoReFa's half is added after.
    expected = (codes - np.ceil(zero)) * scale + (np.ceil(zero) - zero) * scale
    assert np.array_equal(rounded.numpy(), expected)
