import math

import pytest
import torch
from torch import nn

from qunlearn.models import ModelSpec
from qunlearn.quant import QuantSpec, quantize
from qunlearn.training.config import OptimizerConfig
from qunlearn.training.optimizer import (
    LARGEST_CHANGE,
    largest_change,
    learning_rate,
    make_optimizer,
    parameter_groups,
    set_rate,
)


@pytest.mark.parametrize(
    ("quantizer", "decayed"),
    [("lsq+", set()), ("lsq", set()), ("dsq", set()), ("pact", {"activation_quantizer.alpha"})],
)
def test_quantizers_get_no_weight_decay_but_for_pacts_alpha(quantizer, decayed):
    model = ModelSpec("resnet18", 10, 1, 8, 0.125).build()
    quantize(model, QuantSpec(quantizer=quantizer))
    names = {id(p): n for n, p in model.named_parameters()}
    with_decay, without = parameter_groups(model, 5e-4)
    kinds = {names[id(p)] for p in with_decay["params"] if "quantizer" in names[id(p)]}
    assert {".".join(name.split(".")[-2:]) for name in kinds} == decayed
    assert all("quantizer" in names[id(p)] for p in without["params"])
    assert (with_decay["weight_decay"], without["weight_decay"]) == (5e-4, 0.0)
    assert len(with_decay["params"]) + len(without["params"]) == len(names)


def test_schedule_is_half_a_cosine_after_a_linear_warm_up():
    config = OptimizerConfig(epochs=10, lr=0.2, warmup=2)
    rates = [learning_rate(config, 5, epoch, step) for epoch in range(10) for step in range(5)]
    assert rates[:10] == pytest.approx([0.2 * (i + 1) / 10 for i in range(10)])
    expected = [0.1 * (1 + math.cos(math.pi * (i / 5) / 8)) for i in range(40)]
    assert rates[10:] == pytest.approx(expected)


@pytest.mark.parametrize("pull", [1e6, -1e6])
def test_no_gradient_carries_a_scale_through_zero_or_far_away(pull):
    layer = quantize(nn.Linear(4, 3), QuantSpec(first_last_bits=4))
    layer.activation_quantizer.initialise(torch.randn(8, 4))
    scale = layer.weight_quantizer.scale
    optimizer = make_optimizer(layer, OptimizerConfig(lr=0.1))
    for _ in range(300):
        before = scale.item()
        scale.grad = torch.full_like(scale, pull)
        optimizer.step()
        assert scale.item() > 0
        # Momentum remembers the sizes of earlier steps, so a shrinking scale moves faster.
        assert abs(scale.item() / before - 1) <= 2 * LARGEST_CHANGE


@pytest.mark.parametrize("warmup", [0, 100, 300])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.95, 0.99])
def test_a_scale_stays_positive_whatever_the_momentum_and_the_schedule(momentum, warmup):
    layer = quantize(nn.Linear(4, 3), QuantSpec(first_last_bits=4)).double()
    layer.activation_quantizer.initialise(torch.randn(8, 4).double())
    scale = layer.weight_quantizer.scale
    config = OptimizerConfig(lr=0.1, momentum=momentum, epochs=600, warmup=warmup)
    optimizer = make_optimizer(layer, config)
    for epoch in range(config.epochs):
        set_rate(optimizer, config, 1, epoch, 0)
        scale.grad = torch.full_like(scale, 1e6)
        optimizer.step()
        assert scale.item() > 0


def test_the_usual_momentum_has_the_usual_limit():
    assert largest_change(0.9) == LARGEST_CHANGE
    assert largest_change(0.99) < 0.1005 * LARGEST_CHANGE
    # At the limit itself the recurrence p'' = (1 + m - c(1 - m)) p' - m p has one double root, √m.
    for m in (0.95, 0.99):
        limit = (1 - math.sqrt(m)) / (1 + math.sqrt(m))
        assert (1 + m - limit * (1 - m)) ** 2 == pytest.approx(4 * m)
        assert 0.9 * limit < largest_change(m) < limit


def test_small_gradients_are_left_alone():
    layer = quantize(nn.Linear(4, 3), QuantSpec(first_last_bits=4))
    layer.activation_quantizer.initialise(torch.randn(8, 4))
    scale = layer.weight_quantizer.scale
    optimizer = make_optimizer(layer, OptimizerConfig(lr=0.1, weight_decay=0.1))
    before = scale.item()
    scale.grad = torch.full_like(scale, 1e-4)
    optimizer.step()
    assert scale.item() == pytest.approx(before - 0.1 * 1e-4, rel=1e-6)
