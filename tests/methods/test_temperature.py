"""The last layer restores the temperature that forgetting raised, and changes nothing else."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from qunlearn.data import Split
from qunlearn.methods import forget
from qunlearn.methods.calibration import LEARNING, TargetEstimator
from qunlearn.methods.temperature import (
    MOST,
    missing_factor,
    multiply,
    rescale_temperature,
)
from qunlearn.metrics import entropy
from qunlearn.quant import QuantSpec, quantize
from qunlearn.quant.layers import QuantLinear
from qunlearn.training.inference import predict

FACTOR = 1.37


def unsure(model: nn.Module) -> nn.Module:
    """A copy of the model, all of whose logits are smaller."""
    model = copy.deepcopy(model)
    multiply(model.fc, 1 / FACTOR)
    return model


def mean_entropy(model: nn.Module, split: Split, index: torch.Tensor) -> float:
    return float(entropy(predict(model, split.data, index)).mean())


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("quantizer", ["lsq+", "lsq", "pact", "dsq"])
def test_a_layer_is_multiplied_without_a_change_of_codes(quantizer, per_channel):
    torch.manual_seed(0)
    spec = QuantSpec(4, 4, quantizer, per_channel=per_channel, first_last_bits=4)
    net = quantize(nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5)), spec)
    x = torch.randn(64, 20)
    before = net(x).detach()
    layer = net[2]
    assert isinstance(layer, QuantLinear)
    codes = layer.weight_quantizer.grid(layer.weight).codes(layer.quantized_weight())
    assert len(codes.unique()) > 4
    multiply(layer, FACTOR)
    after = layer.weight_quantizer.grid(layer.weight).codes(layer.quantized_weight())
    assert torch.equal(codes, after)
    torch.testing.assert_close(net(x).detach(), FACTOR * before, rtol=1e-5, atol=1e-5)


@given(
    st.lists(st.lists(st.floats(-9, 9), min_size=3, max_size=3), min_size=1), st.floats(0.01, 1.2)
)
def test_the_factor_is_the_one_that_gives_this_entropy(rows, wanted):
    logits = torch.tensor(rows, dtype=torch.float64)
    factor = missing_factor(logits, wanted)
    found = float(entropy(factor * logits).mean())
    assert 1 <= factor <= MOST
    if factor == 1:
        assert found <= wanted
    elif factor < MOST - 1e-5:
        assert found == pytest.approx(wanted, abs=1e-4)
    else:
        assert found >= wanted - 1e-4


def test_the_temperature_is_restored(trained, asked):
    wanted = mean_entropy(trained, asked, asked.held_out)
    less = len(asked.retain) / (len(asked.retain) + len(asked.forget))
    expected = TargetEstimator(trained, asked, asked.held_out, seed=0).estimate(trained).entropy
    assert expected == pytest.approx(wanted * less**-LEARNING)
    model = unsure(trained)
    assert mean_entropy(model, asked, asked.held_out) > expected
    factor = rescale_temperature(model, asked, asked.held_out, wanted)
    assert factor == pytest.approx(FACTOR, rel=1e-4)
    ours, theirs = (predict(m, asked.data, asked.test) for m in (model, trained))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_network_that_is_sure_enough_is_left_alone(trained, asked):
    model = copy.deepcopy(trained)
    wanted = 1.01 * mean_entropy(model, asked, asked.held_out)
    assert rescale_temperature(model, asked, asked.held_out, wanted) == 1
    for name, value in model.state_dict().items():
        assert torch.equal(value, trained.state_dict()[name])


class Squashed(nn.Module):
    """A network whose last layer does not make the logits."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 5 * torch.tanh(self.model(x) / 5)


@pytest.mark.parametrize("reason", ["squashed", "frozen", "no layer", "no more room"])
def test_where_it_cannot_be_done_nothing_is_changed(reason, trained, asked):
    model = unsure(trained)
    if reason == "squashed":
        model = Squashed(model)
    elif reason == "frozen":
        model.fc.weight.requires_grad = False
    elif reason == "no layer":
        model = nn.Flatten()
    else:
        model.fc = quantize(
            nn.Sequential(nn.Linear(model.fc.in_features, 10)), QuantSpec(quantizer="pact")
        )[0]
        with torch.no_grad():
            model.fc.weight[0, 0] = 3.0  # tanh of it is nearly 1 already
        model(torch.zeros(1, 1, 8, 8))
    before = copy.deepcopy(model.state_dict())
    assert rescale_temperature(model, asked, asked.held_out, 1e-3) == 1
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("random", [True, False])
def test_forgetting_ends_as_certain_as_expected(trained, asked, random):
    if not random:  # the same samples, but chosen by somebody
        ids = [asked.data.ids[i] for i in asked.forget.tolist()]
        asked = Split.make(asked.data).forget_ids(ids)
    result = forget(trained, asked, depth="shallow", lr=0.05, epochs=4, batch_size=30, probe=False)
    expected = TargetEstimator(trained, asked, asked.held_out, seed=0).estimate(trained).entropy
    assert 1 < result.findings.calibration.logit_scale < MOST
    samples = torch.cat([asked.held_out, asked.forget]) if random else asked.held_out
    assert mean_entropy(result.model, asked, samples) == pytest.approx(expected, abs=1e-4)
