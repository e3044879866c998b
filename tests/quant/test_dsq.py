from __future__ import annotations

import pytest
import torch
from quant import references as ref
from quant.started import for_input, for_weight

from qunlearn.quant import collapsed, fused
from qunlearn.quant import functional as F
from qunlearn.quant.limits import SHARPEST, SOFTEST

WEIGHT = torch.randn(5, 30, generator=torch.Generator().manual_seed(0)) + 0.2


@pytest.mark.parametrize("per_channel", [True, False])
def test_a_weight_s_range_starts_at_three_deviations_within_the_weights(per_channel: bool) -> None:
    weight = WEIGHT.clone()
    weight[0, 0] = 9  # beyond three deviations
    quantizer = for_weight("dsq", weight, 4, per_channel)
    assert quantizer.lower.shape == ((5, 1) if per_channel else ())
    parts = weight if per_channel else [weight]
    for part, low, high in zip(
        parts, quantizer.lower.flatten(), quantizer.upper.flatten(), strict=True
    ):
        mean, reach = part.mean().item(), 3 * part.std(correction=0).item()
        assert low.item() == pytest.approx(max(mean - reach, part.min().item()))
        assert high.item() == pytest.approx(min(mean + reach, part.max().item()))
    assert (quantizer.upper < 9).all()


def test_an_input_s_range_starts_at_its_ends_and_holds_zero() -> None:
    quantizer = for_input("dsq", WEIGHT)
    assert quantizer.lower.item() == WEIGHT.min().item()
    assert quantizer.upper.item() == WEIGHT.max().item()
    assert for_input("dsq", WEIGHT.abs() + 1).lower.item() == 0
    assert for_input("dsq", -WEIGHT.abs() - 1).upper.item() == 0


def test_the_softness_starts_where_it_may_be() -> None:
    alpha = for_weight("dsq", WEIGHT).alpha.item()
    assert SHARPEST <= alpha <= SOFTEST


@pytest.mark.parametrize("per_channel", [True, False])
def test_least_squares_is_never_worse_than_the_published_start(per_channel: bool) -> None:
    for bits in (2, 4, 8):
        errors = [
            (for_weight("dsq", WEIGHT, bits, per_channel, init)(WEIGHT) - WEIGHT).square().sum()
            for init in ("mse", "published")
        ]
        assert errors[0] <= errors[1]


def test_gradients_reach_the_range_as_it_is_learned() -> None:
    quantizer = for_input("dsq", WEIGHT, bits=3)
    with torch.no_grad():
        quantizer.lower.add_(0.3)
        quantizer.upper.sub_(0.4)
    quantizer(WEIGHT).sum().backward()
    ends = F.snap_range(quantizer.lower.double(), quantizer.upper.double(), 3)
    leaves = ref.leaves(*ends, quantizer.alpha)
    soft = ref.dsq_soft(WEIGHT.double(), *leaves, 3)
    expected = torch.autograd.grad(soft.sum(), leaves)
    found = (quantizer.lower.grad, quantizer.upper.grad, quantizer.alpha.grad)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.9])
def test_a_softness_out_of_its_range_counts_as_the_nearest_in_it(alpha: float) -> None:
    quantizer = for_input("dsq", WEIGHT)
    slopes = []
    for value in (alpha, min(max(alpha, SHARPEST), SOFTEST)):
        with torch.no_grad():
            quantizer.alpha.fill_(value)
        x = WEIGHT.clone().requires_grad_()
        slopes.append(torch.autograd.grad(quantizer(x).sum(), x)[0])
    assert torch.equal(*slopes)
    assert torch.isfinite(slopes[0]).all()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("alpha", "outward"), [(-0.1, 1), (0.0, 1), (0.6, -1)])
def test_no_gradient_carries_the_softness_further_out(
    alpha: float, outward: int, compiled: bool
) -> None:
    quantizer = for_input("dsq", WEIGHT)
    with torch.no_grad():
        quantizer.alpha.fill_(alpha)
    found = []
    for sign in (1, -1):
        quantizer.alpha.grad = None
        with fused(compiled):
            (sign * quantizer(WEIGHT)).sum().backward()
        found.append(quantizer.alpha.grad.item())
    # The slope at the end of the range, by autograd through the soft curve in the paper's form.
    end = SHARPEST if outward > 0 else SOFTEST
    ends = F.snap_range(quantizer.lower.detach().double(), quantizer.upper.detach().double(), 4)
    (softness,) = ref.leaves(end)
    (slope,) = torch.autograd.grad(
        ref.dsq_soft(WEIGHT.double(), *ends, softness, 4).sum(), softness
    )
    # Descent goes against the gradient: one that is positive would lower α further.
    expected = [g if g * outward < 0 else 0 for g in (slope.item(), -slope.item())]
    assert slope.item() != 0
    assert found == pytest.approx(expected, rel=1e-3)


def test_a_softness_out_of_its_range_is_no_collapsed_scale() -> None:
    quantizer = for_input("dsq", WEIGHT)
    for alpha in (-1.0, 0.0, 0.9):
        with torch.no_grad():
            quantizer.alpha.fill_(alpha)
        assert collapsed(quantizer) == []
    with torch.no_grad():
        quantizer.upper.copy_(quantizer.lower)
    assert collapsed(quantizer) == [""]
