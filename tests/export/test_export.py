"""Exported files against PyTorch: the same codes, the same outputs, or nothing at all."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from quant.odd_models import build
from torch import nn

import qunlearn as qu
from qunlearn.errors import Failure, UserError
from qunlearn.export import OnnxNetwork, export, export_onnx

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

T = onnx.TensorProto


def network(spec: qu.QuantSpec | None = None) -> nn.Module:
    """A small network, started, whose BatchNorm turns signs over and shifts."""
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(6)
    net = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        norm,
        nn.ReLU(),
        nn.Conv2d(6, 4, 3, padding=1, groups=2, bias=False),
        nn.Flatten(),
        nn.Linear(256, 10),
    )
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(-2, 2, 6))
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.1, 2)
    if spec is not None:
        net = qu.quantize(net, spec)
        qu.calibrate(net, torch.randn(32, 1, 8, 8))
    return net.eval()


def run(path, x):
    (logits,) = ort.InferenceSession(path.read_bytes()).run(None, {"images": x.numpy()})
    return torch.from_numpy(logits)


@pytest.mark.parametrize(
    ("quantizer", "bits", "per_channel", "stored"),
    [
        ("lsq+", 4, False, T.INT4),
        ("lsq+", 2, True, T.INT2),
        ("lsq", 3, True, T.INT4),
        ("lsq", 8, False, T.INT8),
        ("dsq", 4, True, T.UINT4),
        ("dsq", 2, False, T.UINT2),
        ("pact", 4, False, T.UINT4),
        ("pact", 8, True, T.UINT8),
    ],
)
def test_codes_are_stored_at_their_bits_and_compute_the_same(
    tmp_path, quantizer, bits, per_channel, stored
):
    spec = qu.QuantSpec(bits, 4, quantizer, per_channel=per_channel, first_last_bits=8)
    net, x = network(spec), torch.randn(40, 1, 8, 8)
    exported = export_onnx(net, tmp_path / "net.onnx", x)
    assert exported.agreement.top1 == 100

    with torch.no_grad():
        expected = net(x)
    for part in (x[:1], x[:7]):  # any number of images
        torch.testing.assert_close(
            run(exported.path, part), expected[: len(part)], atol=1e-4, rtol=1e-4
        )

    model = onnx.load(exported.path)
    onnx.checker.check_model(model, full_check=True)
    assert {node.domain for node in model.graph.node} == {""}  # standard operators
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    assert tensors["3.weight"].data_type == stored
    layer = net[3]
    grid = layer.weight_quantizer.grid(layer.weight)
    codes = onnx.numpy_helper.to_array(tensors["3.weight"]).astype(np.int32)
    assert (torch.from_numpy(codes) == grid.codes(layer.quantized_weight().detach())).all()


@pytest.mark.parametrize("name", ["twins", "volume"])
def test_networks_as_other_people_write_them(tmp_path, name):
    net, x = build(name)
    net = qu.quantize(net, qu.QuantSpec(weights=2, activations=4, init="mse"))
    qu.calibrate(net, x)
    exported = export_onnx(net.eval(), tmp_path / "net.onnx", x, least_agreement=0)
    with torch.no_grad():
        torch.testing.assert_close(run(exported.path, x), net(x), atol=1e-4, rtol=1e-4)


class Sequence(nn.Module):
    """Linear layers over a sequence, with a bias and without."""

    def __init__(self):
        super().__init__()
        self.first, self.mix = nn.Linear(64, 64), nn.Linear(64, 64, bias=False)
        self.head = nn.Linear(64, 10, bias=False)

    def forward(self, x):
        return self.head(torch.relu(self.mix(torch.relu(self.first(x)))).mean(1))


@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("target", ["compact", "fast"])
def test_linear_layers_over_a_sequence_are_summed_in_floats(tmp_path, bits, target):
    torch.manual_seed(0)
    x = torch.randn(16, 8, 64)
    net = qu.quantize(Sequence(), qu.QuantSpec(bits, 4))
    qu.calibrate(net.eval(), x)
    exported = export_onnx(net, tmp_path / "net.onnx", x, target=target)
    with torch.no_grad():
        torch.testing.assert_close(run(exported.path, x), net(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("target", ["compact", "fast"])
def test_the_number_of_images_is_called_batch(tmp_path, target):
    path = tmp_path / "net.onnx"
    export_onnx(network(qu.QuantSpec()), path, torch.randn(8, 1, 8, 8), target=target)
    session = ort.InferenceSession(path.read_bytes())
    assert [side.shape for side in (*session.get_inputs(), *session.get_outputs())] == [
        ["batch", 1, 8, 8],
        ["batch", 10],
    ]
    values = onnx.load(path).graph.value_info
    dimensions = [d.dim_param for v in values for d in v.type.tensor_type.shape.dim]
    assert set(filter(None, dimensions)) == {"batch"}


def test_full_precision(tmp_path):
    net, x = network(), torch.randn(20, 1, 8, 8)
    exported = export_onnx(net, tmp_path / "net.onnx", x)
    torch.testing.assert_close(run(exported.path, x), net(x).detach(), atol=1e-5, rtol=1e-4)


def test_the_file_can_take_pixels_and_says_what_it_is_but_not_where_it_was_made(
    tmp_path, digits, monkeypatch, capsys
):
    net = network(qu.QuantSpec())
    path = tmp_path / "model.onnx"
    exported = export_onnx(net, path, digits, preprocess=True, most_samples=30, about={"a": 1})
    pixels = digits.data.images[:9]
    with torch.no_grad():
        expected = net(digits.data.normalise(pixels))
    torch.testing.assert_close(run(path, pixels), expected, atol=1e-4, rtol=1e-4)

    told = ort.InferenceSession(path.read_bytes()).get_modelmeta().custom_metadata_map
    about = json.loads(told["qunlearn"])
    assert about["classes"] == list(digits.data.classes)
    assert (about["a"], about["agreement"]["samples"]) == (1, 30)
    assert exported.agreement.samples == 30
    assert not any(word in path.read_bytes() for word in (b"site-packages", b".py", b"def "))

    page = Path(__file__).parents[2] / "docs" / "howto" / "export.md"
    (program,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    assert capsys.readouterr().out.strip() in digits.data.classes

    # As a network it takes what any network takes: normalised images.
    torch.testing.assert_close(
        OnnxNetwork.open(path)(digits.data.normalise(pixels)), expected, atol=1e-4, rtol=1e-4
    )


def test_a_file_that_computes_something_else_is_not_kept(tmp_path, monkeypatch):
    real = export.to_graph

    def wrong(model, example, opset):
        model[5].bias.data.copy_(torch.arange(10) * 100)
        return real(model, example, opset)

    monkeypatch.setattr(export, "to_graph", wrong)
    with pytest.raises(Failure, match=r"does not match the model.*No file was written"):
        export_onnx(network(), tmp_path / "net.onnx", torch.randn(20, 1, 8, 8))
    assert not list(tmp_path.iterdir())


class Odd(nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x)


class Fixed(nn.Module):
    def forward(self, x):
        return x.reshape(2, -1)


class Deciding(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("make", "options", "says"),
    [
        (lambda: nn.Sequential(nn.Flatten(), Odd(), nn.Linear(64, 10)), {}, r"'1' \(Odd\)"),
        (lambda: nn.Sequential(nn.Flatten(), nn.LSTM(64, 10)), {}, "output is tuple"),
        (Fixed, {}, r"\(Constraints violated.*\); let its .* fix no number of images\."),
        (lambda: nn.Sequential(nn.Flatten(), Deciding()), {}, "decide nothing by their values"),
        (lambda: network(qu.QuantSpec(weights=2)), {"opset": 21}, "2-bit weights of '3'.*25"),
        (network, {"opset": 20}, "Opset 20 is too old.*21"),
        (network, {"opset": 99}, "Opset 99 is newer than the supported ones; choose 21 to 25"),
        (network, {"target": "small"}, "Unknown target 'small'.*compact, fast"),
        (network, {"preprocess": True}, "give a split"),
        (lambda: qu.quantize(nn.Conv2d(1, 1, 3), qu.QuantSpec()), {}, "not initialised"),
    ],
)
def test_what_cannot_be_exported_is_said_in_one_sentence(tmp_path, capfd, make, options, says):
    with pytest.raises(UserError, match=says) as refused:
        export_onnx(make(), tmp_path / "net.onnx", torch.randn(2, 1, 8, 8), **options)
    assert "\n" not in str(refused.value)
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("inner", [ValueError("no such kind.\nTry again"), KeyError()])
def test_what_the_exporter_says_of_no_layer_comes_with_a_remedy(monkeypatch, tmp_path, inner):
    def fail(*_, **__):
        raise torch.onnx.errors.OnnxExporterError("long\nstory") from inner

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(UserError, match=r"\((no such kind|KeyError)\); find the layer by") as said:
        export_onnx(network(), tmp_path / "net.onnx", torch.randn(4, 1, 8, 8))
    assert "\n" not in str(said.value)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "text.onnx").write_text("no graph")
    with pytest.raises(UserError, match=r"text.onnx' is not an ONNX file"):
        OnnxNetwork.open(tmp_path / "text.onnx")
    with pytest.raises(UserError, match="cannot be read"):
        OnnxNetwork.open(tmp_path / "none.onnx")
    info = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    sides = [info("x", T.FLOAT, [1])], [info("y", T.FLOAT, [1])]
    graph = onnx.helper.make_graph([node], "g", *sides)
    imports = [onnx.helper.make_opsetid("", 21)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(UserError, match="was not exported by qunlearn"):
        OnnxNetwork.open(tmp_path / "other.onnx")
