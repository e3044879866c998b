from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from qunlearn.quant import QuantSpec, calibrate, families, quantize
from qunlearn.quant.layers import QUANTIZED, QuantLayer

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "plain": (lambda: nn.Conv2d(4, 6, 3), (2, 4, 7, 7)),
    "grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2, bias=False), (2, 4, 7, 7)),
    "depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4, padding=1), (2, 4, 7, 7)),
    "dilated": (lambda: nn.Conv2d(4, 6, (3, 1), dilation=2, stride=(1, 2)), (2, 4, 9, 9)),
    "same": (lambda: nn.Conv2d(4, 6, 3, padding="same"), (2, 4, 7, 7)),
    "reflect": (lambda: nn.Conv2d(4, 6, 3, padding=2, padding_mode="reflect"), (2, 4, 7, 7)),
    "replicate": (lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="replicate"), (2, 4, 7, 7)),
    "circular": (lambda: nn.Conv1d(4, 6, 3, padding=1, padding_mode="circular"), (2, 4, 7)),
    "1d": (lambda: nn.Conv1d(4, 6, 3, padding=1, stride=2), (2, 4, 9)),
    "3d": (lambda: nn.Conv3d(4, 2, 2), (2, 4, 3, 3, 3)),
    "linear": (lambda: nn.Linear(5, 3), (2, 5)),
    "linear on sequences": (lambda: nn.Linear(5, 3, bias=False), (2, 4, 5)),
}
each_layer = pytest.mark.parametrize("name", LAYERS)


def build(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    return make(), torch.randn(shape)


@each_layer
def test_with_identities_it_is_the_layer_it_replaces(name: str) -> None:
    layer, x = build(name)
    replaced = QUANTIZED[type(layer)](layer, nn.Identity(), nn.Identity())
    assert torch.equal(replaced(x), layer(x))
    assert replaced.weight is layer.weight
    assert replaced.bias is layer.bias
    assert replaced.state_dict().keys() == layer.state_dict().keys()
    assert replaced.extra_repr() == layer.extra_repr()


@each_layer
@pytest.mark.parametrize("kind", ["lsq+", "dsq"])
def test_it_computes_with_the_rounded_weight_and_the_rounded_input(name: str, kind: str) -> None:
    layer, x = build(name)
    weight = families[kind].weights(3, layer.weight, True, "published")
    inputs = families[kind].activations(3, "published")
    found = QUANTIZED[type(layer)](layer, weight, inputs)(x)
    rounded = weight(layer.weight)
    for channel in rounded.detach():
        assert channel.unique().numel() <= 8
    expected = functional_call(layer, {"weight": rounded}, inputs(x))
    assert torch.equal(found, expected)
    assert not torch.equal(found, layer(x))


def small_network(kind: str, per_channel: bool = False) -> tuple[nn.Module, Tensor, Tensor]:
    """Without BatchNorm, in float64, calibrated."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, groups=2),
        nn.SiLU(),
        nn.Flatten(),
        nn.Linear(16, 3),
    )
    spec = QuantSpec(3, 3, quantizer=kind, per_channel=per_channel, init="mse")
    model = quantize(model, spec).double()
    x, y = torch.randn(6, 1, 4, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 1])
    calibrate(model, x)
    for layer in model.modules():  # so that values are clipped, and offsets get gradients
        if isinstance(layer, QuantLayer):
            with torch.no_grad():
                for parameter in layer.activation_quantizer.parameters():
                    parameter.mul_(0.7)
    return model, x, y


def gradients(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    loss = nn.functional.cross_entropy(model(x), y)
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


each_kind = pytest.mark.parametrize("kind", ["lsq", "lsq+", "pact", "dsq"])


@each_kind
def test_gradients_do_not_depend_on_how_a_batch_is_divided(kind: str) -> None:
    model, x, y = small_network(kind)
    whole = gradients(model, x, y)
    parts = [gradients(model, x[i : i + 2], y[i : i + 2]) for i in (0, 2, 4)]
    assert any("activation_quantizer" in name and g.abs().sum() > 0 for name, g in whole.items())
    for name, gradient in whole.items():
        torch.testing.assert_close(sum(part[name] for part in parts) / 3, gradient)


@each_kind
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.filterwarnings("error")  # a missing batching rule would be slow, and says so
def test_per_sample_gradients_by_vmap_agree_with_a_loop(kind: str, per_channel: bool) -> None:
    model, x, y = small_network(kind, per_channel)

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(model, parameters, x[None]), y[None])

    parameters = {name: p.detach() for name, p in model.named_parameters()}
    found = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
    for i in range(len(x)):
        for name, expected in gradients(model, x[i : i + 1], y[i : i + 1]).items():
            torch.testing.assert_close(found[name][i], expected)
