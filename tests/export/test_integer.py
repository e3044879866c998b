"""The target fast: the same outputs as PyTorch's, from convolutions in integers."""

from collections import Counter

import pytest
import torch
from quant.odd_models import build
from torch import nn

import qunlearn as qu
from qunlearn.export import export_onnx

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def started(net, spec, x):
    """The network quantized and calibrated, with BatchNorms that turn signs over and shift."""
    for norm in net.modules():
        if isinstance(norm, nn.modules.batchnorm._BatchNorm):
            with torch.no_grad():
                norm.weight.copy_(torch.linspace(-2, 2, len(norm.weight)))
                norm.bias.normal_()
                norm.running_mean.normal_()
                norm.running_var.uniform_(0.1, 2)
    net = qu.quantize(net, spec)
    qu.calibrate(net.eval(), x)
    return net


def exported(net, x, tmp_path):
    """The file's outputs, and the operators that ONNX Runtime makes of it."""
    done = export_onnx(net, tmp_path / "fast.onnx", x, target="fast", least_agreement=0)
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "as_run.onnx")
    options.log_severity_level = 3
    session = ort.InferenceSession(done.path, options, ["CPUExecutionProvider"])
    (logits,) = session.run(None, {"images": x.numpy()})
    operators = Counter(node.op_type for node in onnx.load(tmp_path / "as_run.onnx").graph.node)
    model = onnx.load(done.path)
    onnx.checker.check_model(model, full_check=True)
    assert {node.domain for node in model.graph.node} == {""}  # standard operators
    return done, torch.from_numpy(logits), operators


@pytest.mark.parametrize(
    ("quantizer", "bits", "per_channel"),
    [
        *(("lsq+", 4, False), ("lsq+", 8, False), ("lsq", 2, True), ("lsq", 8, True)),
        *(("dsq", 4, True), ("dsq", 8, False), ("pact", 2, False), ("pact", 8, True)),
    ],
)
def test_convolutions_in_integers_compute_the_same(tmp_path, quantizer, bits, per_channel):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 5, 3, padding="same"),
        nn.BatchNorm2d(5),
        nn.ReLU(),
        nn.Conv2d(5, 6, (3, 2), stride=(2, 1), padding=(2, 1), dilation=(2, 1)),
        nn.BatchNorm2d(6),
        nn.ReLU6(),
        nn.Conv2d(6, 4, 1, stride=2, bias=False),
        nn.Flatten(),
        nn.Linear(60, 10),
    )
    x = torch.randn(16, 3, 9, 9)
    net = started(net, qu.QuantSpec(bits, bits, quantizer, per_channel=per_channel), x)
    done, logits, operators = exported(net, x, tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(logits, net(x), atol=1e-4, rtol=1e-4)
    assert done.convolutions == 3
    assert operators["MatMulIntegerToFloat"] == done.integer_convolutions
    # In 8 bits BatchNorm may turn -128 over, and PACT's have a half step: those stay in floats.
    assert done.integer_convolutions >= (0 if bits == 8 else 2)


def test_the_largest_codes_do_not_overflow(tmp_path):
    """Two products of 8-bit codes are more than 16 bits: processors without VNNI would cut."""
    net = qu.quantize(nn.Conv2d(8, 2, 3), qu.QuantSpec(8, 8, "lsq"))
    x = torch.rand(4, 8, 3, 3)
    qu.calibrate(net, x)
    with torch.no_grad():
        net.weight.fill_(1e3)  # every code at its largest
        net = nn.Sequential(net, nn.Flatten())
        _, logits, operators = exported(net, x.fill_(1e3), tmp_path)
        assert operators["MatMulIntegerToFloat"] == 1
        torch.testing.assert_close(logits, net(x))


def test_a_network_as_other_people_write_them(tmp_path):
    net, x = build("volume")
    net = started(net, qu.QuantSpec(weights=2, activations=4, init="mse"), x)
    done, logits, operators = exported(net, x, tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(logits, net(x), atol=1e-4, rtol=1e-4)
    assert operators["MatMulIntegerToFloat"] == done.integer_convolutions > 0


@pytest.mark.parametrize("model", ["resnet18", "mobilenetv2"])
def test_our_networks(tmp_path, model):
    x = torch.randn(8, 3, 16, 16)
    net = qu.ModelSpec(model, 10, 3, 16, 0.125).build()
    net = started(net, qu.QuantSpec(4, 4), x)
    done, logits, operators = exported(net, x, tmp_path)
    depthwise = 17 if model == "mobilenetv2" else 0
    assert done.convolutions - depthwise >= operators["MatMulIntegerToFloat"]
    assert operators["MatMulIntegerToFloat"] >= done.convolutions - depthwise - 1
    assert operators["Transpose"] <= 4 + 2 * depthwise  # not one before and after each
    with torch.no_grad():
        torch.testing.assert_close(logits, net(x), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("spec", [qu.QuantSpec(2, None), qu.QuantSpec(quantizer="none")])
def test_inputs_in_full_precision_are_convolved_in_floats(tmp_path, spec):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
    x = torch.randn(8, 1, 8, 8)
    net = qu.quantize(net, spec)
    done, logits, operators = exported(net, x, tmp_path)
    assert done.integer_convolutions == 0
    assert "DequantizeLinear" not in operators  # nothing to unpack at each call
    torch.testing.assert_close(logits, net(x).detach(), atol=1e-4, rtol=1e-4)
