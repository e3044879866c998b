from __future__ import annotations

import math

import pytest
import torch
from quant.odd_models import Twins
from torch import nn

from qunlearn.quant import QuantSpec, calibrate, describe, quantize


def model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 7, 3),  # 189 + 7
        nn.BatchNorm2d(7),  # 14
        nn.Conv2d(7, 5, 3, bias=False),  # 315
        nn.Flatten(),
        nn.Linear(80, 3),  # 240 + 3
    )


PARAMETERS = 196 + 14 + 315 + 243


def test_bits_and_bytes_counted_by_hand() -> None:
    found = describe(quantize(model(), QuantSpec(weights=3, activations=4)))
    assert [(r.name, r.kind, r.weight_bits, r.act_bits) for r in found.layers] == [
        ("0", "Conv2d", 8, 8),
        ("2", "Conv2d", 3, 4),
        ("4", "Linear", 8, 8),
        ("others", "norms etc.", 32, 32),
    ]
    # weight at its bits, rounded up to whole bytes; bias and scale at four bytes
    sizes = [189 + 28 + 4, math.ceil(315 * 3 / 8) + 4, 240 + 12 + 4, 56]
    assert [r.bytes for r in found.layers] == sizes
    assert [r.parameters for r in found.layers] == [196, 315, 243, 14]
    assert found.parameters == PARAMETERS
    assert found.bytes == sum(sizes)


def test_each_channel_s_scale_takes_four_bytes() -> None:
    found = describe(quantize(model(), QuantSpec(weights=4, per_channel=True)))
    assert [r.bytes for r in found.layers] == [189 + 28 + 28, 158 + 20, 240 + 12 + 12, 56]


def test_full_precision_takes_four_bytes_each() -> None:
    found = describe(model())
    assert found.bytes == 4 * PARAMETERS
    assert {(r.weight_bits, r.act_bits, r.weight_scale) for r in found.layers} == {(32, 32, None)}
    assert "1.0 times smaller" in str(found)


def test_a_side_in_full_precision() -> None:
    found = describe(quantize(model(), QuantSpec(weights=None, activations=4)))
    assert found.bytes == 4 * PARAMETERS
    assert [r.act_bits for r in found.layers] == [8, 4, 8, 32]


@pytest.mark.parametrize("kind", ["lsq", "lsq+", "pact", "dsq"])
@pytest.mark.parametrize("per_channel", [True, False])
def test_scales_are_shown_once_they_are_known(kind: str, per_channel: bool) -> None:
    network = quantize(model(), QuantSpec(quantizer=kind, per_channel=per_channel))
    assert all(r.act_scale is None for r in describe(network).layers)
    calibrate(network, torch.randn(4, 3, 8, 8))
    layers = describe(network).layers[:3]
    for row, layer in zip(layers, (network[0], network[2], network[4]), strict=True):
        weight = layer.weight_quantizer.grid(layer.weight).scale.mean().item()
        assert row.weight_scale == pytest.approx(weight)
        inputs = layer.activation_quantizer.grid().scale.item()
        assert row.act_scale == pytest.approx(inputs)


def test_shared_weights_count_once() -> None:
    plain = sum(p.numel() for p in Twins().parameters())
    found = describe(quantize(Twins(), QuantSpec(weights=4)))
    assert found.parameters == plain == 35 + 30 + 25 + 5 + 12
    rows = {r.name: r for r in found.layers}
    assert rows.keys() == {"encoder.0", "encoder.2", "up", "down", "head"}
    assert (rows["up"].parameters, rows["down"].parameters) == (25, 5)
    assert rows["up"].bytes == 13 + 4
    assert rows["down"].bytes == 20 + 4  # its bias, and a scale of its own


def test_the_table_has_a_line_for_each_layer_and_the_total() -> None:
    found = describe(quantize(model(), QuantSpec(weights=4, activations=4)))
    head, *rows, total, share = str(found).splitlines()
    assert head.split()[:4] == ["layer", "kind", "W", "A"]
    assert [row.split()[0] for row in rows] == ["0", "2", "4", "others"]
    assert rows[1].split()[:4] == ["2", "Conv2d", "4", "4"]
    assert total.split() == ["total", f"{PARAMETERS:,}", f"{found.bytes:,}"]
    assert share.startswith(f"{4 * PARAMETERS / found.bytes:.1f} times smaller")
    assert len({len(line) for line in (head, *rows, total)}) == 1  # the columns stand straight


def test_a_model_without_parameters_can_be_described() -> None:
    assert describe(nn.ReLU()).parameters == 0
    assert "total" in str(describe(nn.ReLU()))


def test_a_model_that_is_a_layer_itself() -> None:
    found = describe(quantize(nn.Linear(4, 2), QuantSpec(first_last_bits=2)))
    assert [(r.name, r.bytes) for r in found.layers] == [("(root)", 2 + 8 + 4)]


def test_names_are_shown_as_they_are() -> None:
    network = nn.Sequential()
    network.add_module("[b]x:smile:" + 200 * "y", nn.Linear(2, 2))
    assert "[b]x:smile:" + 200 * "y" + "  Linear" in str(describe(network))
