from __future__ import annotations

import copy

import pytest
import torch
from quant.odd_models import ODD, Twins, build
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from qunlearn.errors import UserError
from qunlearn.models import ModelSpec
from qunlearn.quant import (
    Family,
    Grid,
    Quantizer,
    QuantSpec,
    calibrate,
    families,
    preserve_running_stats,
    quantize,
)
from qunlearn.quant.layers import QUANTIZED, QuantLayer, QuantLinear

W4A4 = QuantSpec(weights=4, activations=4)
each_odd_model = pytest.mark.parametrize("name", ODD)


def bits(model: nn.Module) -> dict[str, tuple[int | None, int | None]]:
    """The bits of each layer's weight and input; None for full precision."""
    return {
        name: tuple(
            getattr(getattr(module, f"{side}_quantizer", None), "bits", None)
            for side in ("weight", "activation")
        )
        for name, module in model.named_modules()
        if isinstance(module, tuple(QUANTIZED))
    }


def chain() -> nn.Sequential:
    """Five layers: 0, 2, 4.0, 4.1 and 5."""
    return nn.Sequential(
        nn.Linear(4, 4),
        nn.ReLU(),
        nn.Linear(4, 4),
        nn.BatchNorm1d(4),
        nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)),
        nn.Linear(4, 3),
    )


# ---- what it keeps


@each_odd_model
def test_every_layer_is_replaced_and_everything_else_stays_the_same_object(name: str) -> None:
    model, x = build(name)
    before = dict(model.named_modules(remove_duplicate=False))
    parameters = dict(model.named_parameters(remove_duplicate=False))
    buffers = dict(model.named_buffers())
    assert quantize(model, W4A4) is model
    after = dict(model.named_modules(remove_duplicate=False))
    for n, module in before.items():
        replaced = type(module) in QUANTIZED
        assert isinstance(after[n], QuantLayer) == replaced
        assert (after[n] is module) == (not replaced)
    now = dict(model.named_parameters(remove_duplicate=False))
    assert all(now[n] is p for n, p in parameters.items())
    assert all(dict(model.named_buffers())[n] is b for n, b in buffers.items())
    calibrate(model, x)
    outputs = model(x)
    for output in outputs if isinstance(outputs, tuple) else [outputs]:
        assert torch.isfinite(output).all()
        output.sum().backward(retain_graph=True)
    missing = [n for n, p in model.named_parameters() if p.grad is None]
    assert missing == []


@each_odd_model
@pytest.mark.parametrize(
    "spec", [QuantSpec(None, None), QuantSpec(32, 32), QuantSpec(quantizer="none")]
)
def test_at_full_precision_nothing_changes(name: str, spec: QuantSpec) -> None:
    model, x = build(name)
    expected = copy.deepcopy(model)(x)
    found = quantize(model, spec)(x)
    assert not any(isinstance(module, QuantLayer) for module in model.modules())
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


@each_odd_model
def test_eight_bits_are_close_to_full_precision(name: str) -> None:
    model, x = build(name)
    model.eval()
    expected = copy.deepcopy(model)(x)
    found = quantize(model, QuantSpec(8, 8, per_channel=True, init="mse"))(x)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).square().mean() < 1e-3 * other.square().mean()


@each_odd_model
def test_a_full_precision_state_dict_still_fits_by_name(name: str) -> None:
    model, _ = build(name)
    state = copy.deepcopy(model.state_dict())
    result = quantize(model, W4A4).load_state_dict(state, strict=False)
    assert result.unexpected_keys == []
    assert all("_quantizer." in key for key in result.missing_keys)


@each_odd_model
@pytest.mark.parametrize("kind", ["lsq", "lsq+", "pact", "dsq"])
def test_a_state_dict_goes_into_a_fresh_model_bit_for_bit(name: str, kind: str) -> None:
    spec = QuantSpec(3, 3, quantizer=kind, per_channel=True)
    model, x = build(name)
    calibrate(quantize(model, spec), x)
    model.eval()
    fresh = quantize(ODD[name][0](), spec).eval()
    fresh.load_state_dict(copy.deepcopy(model.state_dict()))
    twin = copy.deepcopy(model)
    for one, two, three in zip(model(5 * x), fresh(5 * x), twin(5 * x), strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)


def test_a_shared_module_is_replaced_once_and_tied_weights_stay_tied() -> None:
    model = quantize(Twins(), W4A4)
    assert model.mirror is model.encoder
    assert model.again is model.encoder[0]
    assert isinstance(model.again, QuantLayer)
    assert model.down.weight is model.up.weight


def test_a_model_that_is_a_layer_itself_comes_back_replaced() -> None:
    layer = nn.Linear(3, 2)
    model = quantize(layer, W4A4)
    assert isinstance(model, QuantLinear)
    assert model.weight is layer.weight
    assert bits(model) == {"": (8, 8)}


def test_mode_hooks_and_frozen_parameters_are_kept() -> None:
    model = chain()
    model[2].eval()
    model[2].weight.requires_grad_(False)
    seen = []
    handle = model[2].register_forward_hook(lambda *_: seen.append("after"))
    model[2].register_forward_pre_hook(lambda *_: seen.append("before"))
    quantize(model, W4A4)
    assert [m.training for m in (model[0], model[2], model[2].activation_quantizer)] == [
        True,
        False,
        False,
    ]
    assert not model[2].weight.requires_grad
    model(torch.randn(2, 4))
    assert seen == ["before", "after"]
    handle.remove()
    model(torch.randn(2, 4))
    assert seen == ["before", "after", "before"]


def test_the_random_stream_is_not_touched() -> None:
    model = chain()
    before = torch.get_rng_state()
    quantize(model, QuantSpec(init="mse"))
    assert torch.equal(torch.get_rng_state(), before)


# ---- who gets which bits


@pytest.mark.parametrize(
    ("spec", "first", "inner", "last"),
    [
        (QuantSpec(4, 4), (8, 8), (4, 4), (8, 8)),
        (QuantSpec(2, None), (8, None), (2, None), (8, None)),
        (QuantSpec(None, 3), (None, 8), (None, 3), (None, 8)),
        (QuantSpec(4, 2, first_last_bits=None), (None, None), (4, 2), (None, None)),
        (QuantSpec(4, 2, first_last_bits=32), (None, None), (4, 2), (None, None)),
        (QuantSpec(4, 2, first_last_bits=3), (3, 3), (4, 2), (3, 3)),
        (QuantSpec(4, 4, overrides={"5": {"weights": 2}}), (8, 8), (4, 4), (2, 8)),
        (QuantSpec(4, 4, overrides={"?": {"activations": None}}), (8, None), (4, None), (8, None)),
    ],
)
def test_first_and_last_layer(spec: QuantSpec, first: tuple, inner: tuple, last: tuple) -> None:
    found = bits(quantize(chain(), spec))
    assert (found["0"], found["2"], found["5"]) == (first, inner, last)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"4.*": {"weights": 2, "activations": 3}}, {"4.0": (2, 3), "4.1": (2, 3)}),
        ({"4": {"weights": 2}}, {"4.0": (2, 4), "4.1": (2, 4)}),  # a container: all that it holds
        ({"4.1": None}, {"4.1": (None, None)}),
        ({"4": None}, {"4.0": (None, None), "4.1": (None, None)}),
        ({"4": {"quantizer": "none"}}, {"4.0": (None, None), "4.1": (None, None)}),
        ({"4": {"weights": 2}, "4.1": {"weights": 6}}, {"4.0": (2, 4), "4.1": (6, 4)}),
        ({"4": None, "4.1": {"weights": 6}}, {"4.0": (None, None), "4.1": (6, 4)}),
        ({"2": {}}, {}),
        ({"3": None}, {}),  # a norm, which is left alone anyhow
    ],
)
def test_overrides_by_name(overrides: dict, expected: dict) -> None:
    usual = {"0": (8, 8), "2": (4, 4), "4.0": (4, 4), "4.1": (4, 4), "5": (8, 8)}
    assert bits(quantize(chain(), QuantSpec(4, 4, overrides=overrides))) == usual | expected


def test_an_override_can_be_all_there_is() -> None:
    for spec in (
        QuantSpec(None, None, overrides={"2": {"weights": 3}}),
        QuantSpec(3, None, quantizer="none", overrides={"2": {"quantizer": "lsq"}}),
    ):
        found = bits(quantize(chain(), spec))
        assert found.pop("2") == (3, None)
        assert set(found.values()) == {(None, None)}


def test_an_override_can_choose_another_quantizer_and_its_start() -> None:
    model = chain()
    overrides = {"2": {"quantizer": "dsq", "per_channel": True, "init": "mse"}}
    quantize(model, QuantSpec(overrides=overrides))
    assert type(model[2].weight_quantizer).__name__ == "DsqWeight"
    assert model[2].weight_quantizer.lower.shape == (4, 1)
    assert model[2].weight_quantizer.init == "mse"
    assert type(model[5].weight_quantizer).__name__ == "LsqPlusWeight"


@pytest.mark.parametrize("changes", [None, {"weights": 8}])
def test_a_pattern_that_fits_nothing_is_refused_with_the_nearest_layer(
    changes: dict | None,
) -> None:
    model = nn.Sequential()
    model.add_module("features", nn.Linear(2, 2))
    model.add_module("norm", nn.BatchNorm1d(2))
    with pytest.raises(UserError, match="'featurs': did you mean 'features'"):
        quantize(model, QuantSpec(overrides={"featurs": changes}))
    with pytest.raises(UserError, match="'norm'"):  # it has no bits to override
        quantize(model, QuantSpec(overrides={"norm": {"weights": 8}}))
    assert type(model.features) is nn.Linear


# ---- what it refuses


class OwnMatrix(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(4, 4))
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x + self.places)


class MyConv(nn.Conv2d):
    pass


def legacy_weight_norm() -> nn.Module:
    with pytest.warns(FutureWarning):
        return nn.utils.weight_norm(nn.Linear(4, 4))


def adapted() -> nn.Module:
    layer = nn.Linear(4, 4)
    layer.lora = nn.Linear(4, 4)
    return layer


def filled(value: float) -> nn.Module:
    layer = nn.Linear(4, 4)
    nn.init.constant_(layer.weight, value)
    return layer


REFUSED = {
    "transposed convolution": (lambda: nn.ConvTranspose2d(4, 4, 3), "ConvTranspose2d.*'weight'"),
    "lstm": (lambda: nn.LSTM(4, 4), "LSTM.*weight_ih_l0"),
    "attention": (lambda: nn.MultiheadAttention(4, 2), "MultiheadAttention.*in_proj_weight"),
    "encoder": (lambda: nn.TransformerEncoderLayer(4, 2, 4), "TransformerEncoderLayer.*eval mode"),
    "embedding": (lambda: nn.Embedding(4, 4), "Embedding.*'weight'"),
    "bilinear": (lambda: nn.Bilinear(4, 4, 4), "Bilinear.*'weight'"),
    "subclass": (lambda: MyConv(4, 4, 3), "MyConv.*subclass of Conv2d.*use nn.Conv2d"),
    "weight norm": (
        lambda: parametrizations.weight_norm(nn.Linear(4, 4)),
        "ParametrizedLinear.*remove_parametrizations",
    ),
    "legacy weight norm": (legacy_weight_norm, "Linear.*'weight_g'.*undo weight norm"),
    "pruning": (
        lambda: prune.l1_unstructured(nn.Linear(4, 4), "weight", 0.5),
        "Linear.*'weight_orig'.*undo.*pruning",
    ),
    "adapter": (adapted, "Linear.*'lora.weight'.*undo.*adapters"),
    "lazy": (lambda: nn.LazyLinear(4), "LazyLinear.*run one batch"),
    "lazy norm": (lambda: nn.LazyBatchNorm1d(), "LazyBatchNorm1d.*run one batch"),
    "meta": (lambda: nn.Linear(4, 4, device="meta"), "Linear.*no values yet.*load"),
    "nan": (lambda: filled(torch.nan), "Linear.*NaN.*repair or retrain"),
    "infinite": (lambda: filled(torch.inf), "Linear.*infinite.*repair or retrain"),
    "complex": (lambda: nn.Linear(4, 4, dtype=torch.complex64), "Linear.*complex64.*convert"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_what_it_cannot_quantize_it_names_with_reason_and_remedy(case: str) -> None:
    make, message = REFUSED[case]
    model = nn.Sequential(nn.Linear(4, 4), nn.ModuleDict({"odd": make()}), nn.Linear(4, 4))
    before = list(model.modules())
    with pytest.raises(UserError, match=f"1[.]odd .{message}") as refusal:
        quantize(model, W4A4)
    assert list(map(id, model.modules())) == list(map(id, before))
    assert str(refusal.value).count("1.odd") == 2  # what is inside of it is not named again
    # and the remedy works
    assert "overrides={'1.odd': None}" in str(refusal.value)
    quantize(model, QuantSpec(overrides={"1.odd": None}))
    assert bits(model)["0"] == bits(model)["2"] == (8, 8)
    assert model[1]["odd"] in before


def test_all_refusals_stand_in_one_message() -> None:
    model = nn.Sequential(nn.Embedding(4, 4), nn.Linear(4, 4), nn.LSTM(4, 4))
    with pytest.raises(UserError, match=r"0 \(Embedding\).*; 2 \(LSTM\)"):
        quantize(model, W4A4)


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_matrix_of_the_user_s_own_can_be_left_alone_without_its_layers(wrapped: bool) -> None:
    model = nn.Sequential(OwnMatrix()) if wrapped else OwnMatrix()
    name = "0.places" if wrapped else "places"
    with pytest.raises(UserError, match=rf"{name} \(parameter of OwnMatrix\)") as refusal:
        quantize(model, W4A4)
    assert f"overrides={{{name!r}: None}}" in str(refusal.value)
    model = quantize(model, QuantSpec(overrides={name: None}))
    assert set(bits(model).values()) == {(8, 8)}


def test_nothing_to_quantize() -> None:
    with pytest.raises(UserError, match="nothing to quantize"):
        quantize(nn.Sequential(nn.ReLU()), W4A4)


def test_twice_is_refused() -> None:
    model = quantize(chain(), W4A4)
    with pytest.raises(UserError, match="quantized already"):
        quantize(model, W4A4)


# ---- calibration


@pytest.mark.parametrize("kind", ["lsq", "lsq+", "pact", "dsq"])
def test_calibration_starts_every_quantizer_and_records_no_statistics(kind: str) -> None:
    spec = ModelSpec("resnet18", classes=3, channels=1, size=8, width=0.125)
    model = quantize(spec.build(), QuantSpec(quantizer=kind))
    x = torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    before = {n: b.clone() for n, b in model.named_buffers() if "quantizer" not in n}
    calibrate(model, x)
    after = dict(model.named_buffers())
    assert all(torch.equal(after[n], b) for n, b in before.items())
    assert all(q.initialised for q in model.modules() if isinstance(q, Quantizer))
    assert model.training
    # the first pass would have started it so
    twin = quantize(spec.build(), QuantSpec(quantizer=kind))
    with torch.no_grad():
        twin(x)
    for (name, one), other in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert torch.equal(one, other), name


def test_calibration_names_a_layer_that_the_batch_does_not_reach() -> None:
    model = chain()
    model.spare = nn.Linear(4, 4)
    model.forward = lambda x: model[5](x)
    quantize(model, W4A4)
    with pytest.raises(UserError, match=r"layer '0' saw no data.*overrides=\{'0': None\}"):
        calibrate(model, torch.randn(5, 4))


@pytest.mark.parametrize("training", [True, False])
def test_a_forward_pass_that_keeps_statistics_can_be_differentiated_later(training: bool) -> None:
    model = chain().train(training)
    x = torch.randn(6, 4)
    twin = copy.deepcopy(model)
    before = copy.deepcopy(model.state_dict())
    with preserve_running_stats(model):
        output = model(x)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    output.sum().backward()
    twin(x).sum().backward()
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


def test_statistics_come_back_after_a_failure() -> None:
    model = chain()
    model[5] = nn.Linear(9, 3)  # it does not fit, which shows only after the norm
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(RuntimeError), preserve_running_stats(model):
        model(torch.randn(6, 4))
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


# ---- a user's own quantizer


class Sign(Quantizer):
    """Keeps the sign and the mean size."""

    def start(self, x: Tensor) -> None:
        pass

    def quantize(self, x: Tensor) -> Tensor:
        return x.sign() * x.abs().mean()

    def grid(self, x: Tensor | None = None) -> Grid:
        return Grid(torch.ones(()) if x is None else x.abs().mean(), torch.zeros(()), -1, 1)

    def sizes(self) -> dict[str, Tensor]:
        return {}


def test_a_quantizer_of_one_s_own_is_one_class_and_one_line() -> None:
    families.register("sign")(Family(lambda bits, *_: Sign(bits), lambda bits, _: Sign(bits)))
    try:
        model = quantize(chain(), QuantSpec(2, 2, quantizer="sign", first_last_bits=2))
        calibrate(model, torch.randn(3, 4))
        assert model[2].quantized_weight().unique().numel() == 2
        with pytest.raises(UserError, match="did you mean 'sign'"):
            QuantSpec(quantizer="sing")
    finally:
        del families._entries["sign"]


def test_calibration_notices_a_layer_that_the_model_does_not_call() -> None:
    class Aliased(nn.Module):
        """Calls its layers through a plain list, which keeps the old ones."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)
            self.plain = [self.layer]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.plain[0](x)

    model = quantize(Aliased(), QuantSpec(weights=2, activations=None))
    with pytest.raises(UserError, match="layer 'layer' saw no data"):
        calibrate(model, torch.randn(2, 4))
