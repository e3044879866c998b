from __future__ import annotations

import pytest
import torch
from quant.started import for_input, for_weight

WEIGHT = torch.randn(5, 3, 2, 2, generator=torch.Generator().manual_seed(0))


def test_alpha_starts_at_six() -> None:
    assert for_input("pact", WEIGHT).alpha.item() == 6


def test_alpha_can_start_by_least_squares() -> None:
    x = WEIGHT.abs()
    errors = [
        (for_input("pact", x, init=init)(x) - x).square().sum() for init in ("mse", "published")
    ]
    assert errors[0] < errors[1]


@pytest.mark.parametrize(("x", "low"), [(WEIGHT, -6), (WEIGHT.abs(), 0)])
def test_the_first_batch_decides_the_sign(x: torch.Tensor, low: float) -> None:
    quantizer = for_input("pact", x)
    assert quantizer(torch.tensor([[-9.0, 9.0]])).tolist() == [[low, 6]]


def test_dorefa_weights_keep_their_size() -> None:
    weight = 0.01 * WEIGHT  # so small that tanh is straight
    output = for_weight("pact", weight, bits=8)(weight)
    assert (output - weight).abs().max() <= weight.abs().max() / 255 * 1.01
    assert output.abs().max() == pytest.approx(weight.abs().max().item(), rel=1e-3)


@pytest.mark.parametrize("per_channel", [True, False])
def test_dorefa_weights_use_their_own_range(per_channel: bool) -> None:
    quantizer = for_weight("pact", WEIGHT, 3, per_channel)
    weight = WEIGHT.clone().requires_grad_()
    output = quantizer(weight)
    for part, rounded in zip(
        WEIGHT if per_channel else [WEIGHT], output if per_channel else [output], strict=True
    ):
        largest = torch.tanh(part).abs().max()
        unit = torch.tanh(part) / (2 * largest) + 0.5
        torch.testing.assert_close(rounded, largest * (2 * (7 * unit).round() / 7 - 1))
    output.sum().backward()
    # Range and size cancel in the gradient: what is left is the slope of the tanh.
    torch.testing.assert_close(weight.grad, 1 - torch.tanh(WEIGHT).square())
