from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from qunlearn.quant import QuantSpec, calibrate, families, layers, quantize, weight_cache
from qunlearn.quant.layers import QUANTIZED, QuantLayer
from qunlearn.quant.lsq import LsqPlusActivation

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


def test_an_input_without_a_batch_has_the_gradients_of_a_batch_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layers, "MIN_PRODUCTS", 0)
    monkeypatch.setattr(layers, "MIN_ELEMENTS", 0)
    spec = QuantSpec(4, 4, "pact", first_last_bits=4)
    model = quantize(nn.Sequential(nn.Conv2d(4, 8, 3), nn.Conv2d(8, 8, 3)), spec)
    x = torch.randn(4, 6, 6)
    model(x[None]).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@each_kind
def test_within_a_users_torch_compile_the_gradients_are_the_same(kind: str) -> None:
    model, x, y = small_network(kind)
    expected = gradients(model, x, y)
    for name, found in gradients(torch.compile(model, backend="eager"), x, y).items():
        torch.testing.assert_close(found, expected[name.removeprefix("_orig_mod.")])


@each_kind
def test_recomputation_in_backward_changes_nothing(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x, y = small_network(kind)
    monkeypatch.setattr(layers, "MIN_PRODUCTS", 10**9)
    expected = gradients(model, x, y)
    monkeypatch.setattr(layers, "MIN_PRODUCTS", 0)
    monkeypatch.setattr(layers, "MIN_ELEMENTS", 0)
    for name, gradient in gradients(model, x, y).items():
        assert torch.equal(gradient, expected[name]), name


STRIDED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "2d": (lambda: nn.Conv2d(4, 6, 1, stride=2), (3, 4, 7, 8)),
    "2d, grouped": (lambda: nn.Conv2d(4, 6, 1, stride=(1, 3), groups=2, bias=False), (3, 4, 7, 8)),
    "2d, without a batch": (lambda: nn.Conv2d(4, 6, 1, stride=2, padding="valid"), (4, 7, 8)),
    "1d": (lambda: nn.Conv1d(4, 6, 1, stride=2), (3, 4, 9)),
    "3d": (lambda: nn.Conv3d(4, 6, 1, stride=2), (3, 4, 3, 4, 5)),
}


@each_kind
@pytest.mark.parametrize("name", STRIDED)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_rounding_only_what_a_strided_convolution_looks_at_changes_nothing(
    kind: str, name: str, layout: torch.memory_format, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    make, shape = STRIDED[name]
    layer = quantize(nn.Sequential(make()), QuantSpec(3, 3, kind, first_last_bits=3)).double()[0]
    x = torch.randn(shape, dtype=torch.float64)
    x = x.contiguous(memory_format=layout) if len(shape) == 4 else x
    sizes, rounding = [], type(layer.activation_quantizer).quantize

    def noted(quantizer: nn.Module, x: Tensor, whole: Tensor | None = None) -> Tensor:
        sizes.append(x.shape)
        return rounding(quantizer, x, whole)

    monkeypatch.setattr(type(layer.activation_quantizer), "quantize", noted)
    found = []
    for part in (True, False):
        fresh = copy.deepcopy(layer)
        if not part:
            monkeypatch.setattr(type(layer), "slices_input", lambda layer: False)
        given = x.clone().requires_grad_()
        out = fresh(given)
        (out * torch.arange(out.numel()).reshape(out.shape).double().cos()).sum().backward()
        gradients = {name: p.grad for name, p in fresh.named_parameters()}
        found.append({"out": out, "x": given.grad, **gradients, **fresh.state_dict()})
    assert sizes[0].numel() < sizes[1].numel() == x.numel()
    assert found[0].keys() == found[1].keys()
    for name, tensor in found[0].items():
        torch.testing.assert_close(tensor, found[1][name], msg=name)
    assert found[0]["x"].stride() == x.stride()


def test_who_knows_nothing_of_parts_gets_the_whole() -> None:
    class Mine(LsqPlusActivation):
        def quantize(self, x: Tensor) -> Tensor:
            return super().quantize(x)

    def gradients_with(change: Callable[[QuantLayer], object]) -> list[Tensor]:
        torch.manual_seed(0)
        layer = quantize(nn.Sequential(nn.Conv2d(4, 6, 1, stride=2)), QuantSpec(3, 3))[0]
        change(layer)
        layer(torch.randn(3, 4, 7, 8)).cos().sum().backward()
        return [parameter.grad for parameter in layer.parameters()]

    expected = gradients_with(lambda layer: None)
    for change in (
        lambda layer: setattr(layer, "activation_quantizer", Mine(8, "published")),
        lambda layer: layer.activation_quantizer.register_forward_pre_hook(lambda _, x: x[0] * 1),
        lambda layer: layer.activation_quantizer.register_forward_hook(lambda _, x, y: y * 1),
    ):
        for found, gradient in zip(gradients_with(change), expected, strict=True):
            torch.testing.assert_close(found, gradient)


@each_kind
def test_transforms_over_other_layers_pass_through_strided_convolutions(kind: str) -> None:
    spec = QuantSpec(3, 3, kind)
    model = quantize(nn.Sequential(nn.Conv2d(4, 6, 1, stride=2), nn.Conv2d(6, 2, 4)), spec)
    x = torch.randn(3, 4, 7, 8)
    expected = model(x)
    last = {name: p.detach() for name, p in model.named_parameters() if name.startswith("1.")}
    twice = {name: torch.stack([tensor, tensor]) for name, tensor in last.items()}
    found = vmap(lambda parameters: functional_call(model, parameters, (x,)))(twice)
    torch.testing.assert_close(found, torch.stack([expected, expected]))
    all_of_it = {name: p.detach() for name, p in model.named_parameters()}
    slopes = grad(lambda parameters: functional_call(model, parameters, (x,)).sum())(all_of_it)
    expected.sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(slopes[name], parameter.grad)


@each_kind
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_transforms_pass_through_strided_slices_and_recomputation(
    kind: str, layout: torch.memory_format, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "MIN_PRODUCTS", 0)
    monkeypatch.setattr(layers, "MIN_ELEMENTS", 0)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.Conv2d(6, 2, 1, stride=2))
    model = quantize(net, QuantSpec(3, 3, kind, first_last_bits=3)).double()
    x = torch.randn(3, 4, 7, 8, dtype=torch.float64).contiguous(memory_format=layout)
    model(x)
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(model, parameters, (x,)).square().sum()

    assert all(conv.slices_input() == (conv.stride == (2, 2)) for conv in model)
    for_all = grad(loss, argnums=(0, 1))(parameters, x)
    for_each = vmap(grad(loss, argnums=(0, 1)), in_dims=(None, 0))(parameters, x[:, None])
    inputs = [x, *(one[None] for one in x)]
    outcomes = [
        for_all,
        *(({k: v[i] for k, v in for_each[0].items()}, for_each[1][i][None]) for i in range(3)),
    ]
    for each, (slopes, to_input) in zip(inputs, outcomes, strict=False):
        model.zero_grad()
        leaf = each.clone(memory_format=torch.preserve_format).requires_grad_()
        model(leaf).square().sum().backward()
        torch.testing.assert_close(to_input.reshape(leaf.shape), leaf.grad)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(slopes[name], parameter.grad, msg=name)


def test_a_batch_of_inputs_by_vmap_has_gradients_in_torchs_autograd(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layers, "MIN_PRODUCTS", 0)
    monkeypatch.setattr(layers, "MIN_ELEMENTS", 0)
    model = quantize(nn.Sequential(nn.Conv2d(4, 6, 1, stride=2), nn.Conv2d(6, 2, 2)), QuantSpec())
    x = torch.randn(3, 4, 7, 8)
    expected = model(x)
    expected.square().sum().backward()
    gradients = [p.grad for p in model.parameters()]
    model.zero_grad()
    mapped = vmap(lambda one: model(one[None])[0])(x)
    torch.testing.assert_close(mapped, expected)
    mapped.square().sum().backward()
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_a_strided_convolution_saves_nothing_that_it_can_recompute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layers, "MIN_ELEMENTS", 0)
    spec = QuantSpec(4, 4, first_last_bits=4)
    layer = quantize(nn.Sequential(nn.Conv2d(8, 128, 1, stride=2)), spec)
    x = torch.randn(16, 8, 20, 20, requires_grad=True)
    outputs, part = 4 * 16 * 128 * 100, 4 * 16 * 8 * 100
    assert outputs + part <= kept_for_backward(layer, x) < outputs + part + 2000


def kept_for_backward(model: nn.Module, x: Tensor) -> int:
    """The bytes that a forward pass leaves allocated, as torch's own allocator reports them."""
    model(x)
    with torch.profiler.profile(profile_memory=True) as profile:
        logits = model(x)
    assert logits.requires_grad
    return sum(event.self_cpu_memory_usage for event in profile.events())


@pytest.mark.parametrize(
    ("work", "little", "again"), [(0, 0, True), (10**9, 0, False), (0, 10**9, False)]
)
def test_a_step_keeps_no_more_than_in_full_precision(
    work: int, little: int, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "MIN_PRODUCTS", work)
    monkeypatch.setattr(layers, "MIN_ELEMENTS", little)

    def network() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)
        )

    x = torch.randn(16, 8, 20, 20)
    few, full = quantize(network(), QuantSpec()), network()
    more = kept_for_backward(few, x) - kept_for_backward(full, x)
    weights = 3 * 4 * 8 * 8 * 9
    inputs = 4 * 16 * 8 * (20**2 + 18**2 + 16**2)
    expected = 0 if again else weights + inputs
    assert expected <= more < expected + 2000  # scales and zero points


def test_the_weight_cache_holds_for_its_block_only() -> None:
    model, x, _ = small_network("lsq")
    model.eval()
    rounded: list[nn.Module] = []
    for layer in model.modules():
        if isinstance(layer, QuantLayer):
            layer.weight_quantizer.register_forward_hook(lambda m, *_: rounded.append(m))
    with torch.no_grad():
        expected = model(x)
        count = len(rounded)
        with weight_cache():
            assert torch.equal(model(x), expected)
            assert torch.equal(model(x), expected)
        assert len(rounded) == 2 * count
        next(model.parameters()).mul_(-1)
        assert not torch.equal(model(x), expected)
        with weight_cache():
            assert not torch.equal(model(x), expected)
    first = next(m for m in model.modules() if isinstance(m, QuantLayer))
    for parameter in (first.weight, *first.weight_quantizer.parameters()):
        parameter.requires_grad_(False)
    expected, rounded[:] = model(x), []
    with weight_cache(frozen=True):
        with torch.inference_mode():
            model(x)
        rounded[:] = []
        for _ in range(3):
            assert torch.equal(model(x), expected)
        model(x).sum().backward()
    assert rounded.count(first.weight_quantizer) == 1
    assert len(rounded) == 1 + 4 * (count - 1)
    with weight_cache():  # with a gradient each pass needs its own
        for _ in range(2):
            model(x).sum().backward()
