from __future__ import annotations

import math

import pytest
import torch
from quant import references as ref
from quant.started import for_input, for_weight

from qunlearn.quant import Quantizer

BITS = [2, 3, 4, 8]
WEIGHT = torch.randn(5, 3, 2, 2, generator=torch.Generator().manual_seed(0)) + 0.2


@pytest.mark.parametrize("bits", BITS)
def test_lsq_weights_start_at_twice_the_mean_size(bits: int) -> None:
    top = 2 ** (bits - 1) - 1
    found = for_weight("lsq", WEIGHT, bits).scale
    assert found.item() == pytest.approx(2 * WEIGHT.abs().mean().item() / math.sqrt(top))
    found = for_weight("lsq", WEIGHT, bits, per_channel=True).scale
    assert found.shape == (5, 1, 1, 1)
    for scale, channel in zip(found, WEIGHT, strict=True):
        assert scale.item() == pytest.approx(2 * channel.abs().mean().item() / math.sqrt(top))


@pytest.mark.parametrize("bits", BITS)
def test_lsq_plus_weights_start_at_three_deviations(bits: int) -> None:
    def expected(w: torch.Tensor) -> float:
        mean, deviation = w.mean().item(), w.std(correction=0).item()
        return max(abs(mean - 3 * deviation), abs(mean + 3 * deviation)) / 2 ** (bits - 1)

    assert for_weight("lsq+", WEIGHT, bits).scale.item() == pytest.approx(expected(WEIGHT))
    assert for_weight("lsq+", -WEIGHT, bits).scale.item() == pytest.approx(expected(WEIGHT))
    for scale, channel in zip(
        for_weight("lsq+", WEIGHT, bits, per_channel=True).scale, WEIGHT, strict=True
    ):
        assert scale.item() == pytest.approx(expected(channel))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("signed", [True, False])
def test_lsq_inputs_start_at_twice_the_mean_size_on_the_grid_they_need(
    bits: int, signed: bool
) -> None:
    x = WEIGHT if signed else WEIGHT.abs()
    quantizer = for_input("lsq", x, bits)
    top = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    assert quantizer.scale.item() == pytest.approx(2 * x.abs().mean().item() / math.sqrt(top))
    assert quantizer(torch.tensor([1e6])).item() == pytest.approx(top * quantizer.scale.item())
    bottom = -(2 ** (bits - 1)) if signed else 0
    assert quantizer(torch.tensor([-1e6])).item() == pytest.approx(bottom * quantizer.scale.item())


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("init", ["published", "mse"])
def test_lsq_plus_inputs_start_by_least_squares(bits: int, init: str) -> None:
    x = torch.nn.functional.silu(3 * WEIGHT)
    started = for_input("lsq+", x, bits, init)
    error = (started(x) - x).square().sum()
    with torch.no_grad():
        for factor in (0.7, 0.9, 1.1, 1.4):  # in all directions it gets worse
            scale = started.scale.clone()
            started.scale.mul_(factor)
            assert (started(x) - x).square().sum() >= error
            started.scale.copy_(scale)


@pytest.mark.parametrize("kind", ["lsq", "lsq+"])
def test_least_squares_is_never_worse_than_the_published_start(kind: str) -> None:
    for bits in BITS:
        for per_channel in (False, True):
            errors = [
                (for_weight(kind, WEIGHT, bits, per_channel, init)(WEIGHT) - WEIGHT).square().sum()
                for init in ("mse", "published")
            ]
            assert errors[0] <= errors[1]


def unscaled(quantizer: Quantizer, x: torch.Tensor) -> torch.Tensor:
    """The scale's gradient without LSQ's factor, by autograd through the plain composition."""
    grid = quantizer.grid()
    (scale,) = ref.leaves(quantizer.scale)
    output = ref.uniform(x.double(), scale, grid.zero_point.double(), grid.low, grid.high)
    return torch.autograd.grad(output.sum(), scale)[0]


@pytest.mark.parametrize("kind", ["lsq", "lsq+"])
@pytest.mark.parametrize("per_channel", [True, False])
def test_a_weight_s_factor_counts_the_weights_that_share_the_scale(
    kind: str, per_channel: bool
) -> None:
    quantizer = for_weight(kind, WEIGHT, 3, per_channel)
    quantizer(WEIGHT).sum().backward()
    sharing = 12 if per_channel else 60
    expected = unscaled(quantizer, WEIGHT) / math.sqrt(sharing * 3)
    torch.testing.assert_close(quantizer.scale.grad, expected.float())


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("batch", [1, 5])
def test_an_input_s_factor_counts_the_features_of_one_sample(signed: bool, batch: int) -> None:
    x = (WEIGHT if signed else WEIGHT.abs())[:batch]
    quantizer = for_input("lsq", x, 3)
    quantizer(x).sum().backward()
    signed = bool((x < 0).any())
    expected = unscaled(quantizer, x) / math.sqrt(12 * (3 if signed else 7))
    torch.testing.assert_close(quantizer.scale.grad, expected.float())


@pytest.mark.parametrize("batch", [1, 5])
def test_lsq_plus_scales_both_gradients_alike(batch: int) -> None:
    x = WEIGHT[:batch]
    quantizer = for_input("lsq+", x, 3)
    quantizer(x).sum().backward()
    scale, offset = ref.leaves(quantizer.scale, quantizer.offset)
    output = ref.uniform(x.double(), scale, ref.zero_point(offset, scale, 0, 7), 0, 7)
    expected = torch.autograd.grad(output.sum(), (scale, offset))
    factor = 1 / math.sqrt(12 * 7)
    torch.testing.assert_close(quantizer.scale.grad, factor * expected[0].float())
    torch.testing.assert_close(quantizer.offset.grad, factor * expected[1].float())
    assert expected[1] != 0
