"""Codes are those of ONNX Runtime's QuantizeLinear, also on ties; so are exported networks."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

import qunlearn as qu
from qunlearn.quant import functional as F
from qunlearn.quant import fused, why_not
from qunlearn.quant.kernels import zero_point

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

KINDS = {4: onnx.TensorProto.UINT4, 8: onnx.TensorProto.UINT8}
WAYS = [False] if why_not() else [False, True]


@cache
def session(bits: int) -> Any:
    """QuantizeLinear and a cast, so that 4-bit codes come as bytes."""
    kind, byte = KINDS[bits], onnx.TensorProto.UINT8
    describe, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    graph = onnx.helper.make_graph(
        [
            node("Cast", ["z"], ["zero"], to=kind),
            node("QuantizeLinear", ["x", "s", "zero"], ["codes"]),
            node("Cast", ["codes"], ["y"], to=byte),
        ],
        "quantize",
        [
            describe("x", onnx.TensorProto.FLOAT, ["n"]),
            describe("s", onnx.TensorProto.FLOAT, []),
            describe("z", byte, []),
        ],
        [describe("y", byte, ["n"])],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10
    )
    onnx.checker.check_model(model)
    return ort.InferenceSession(model.SerializeToString())


def codes_of_onnx(x: Tensor, scale: float, zero: int, bits: int) -> Tensor:
    words = {"x": x.numpy(), "s": np.array(scale, "f"), "z": np.array(zero, "u1")}
    (codes,) = session(bits).run(None, words)
    return torch.from_numpy(codes.astype(np.float32))


SCALES = st.one_of(
    st.sampled_from([2.0**k for k in range(-12, 6)]),  # where ties are exact
    st.floats(2.0**-13, 1024.0, width=32),
)


@example(bits=4, scale=0.25, zero=3, halves=[-7, -5, -3, -1, 1, 3, 5, 7, 9], others=[])
@given(
    bits=st.sampled_from(sorted(KINDS)),
    scale=SCALES,
    zero=st.integers(0, 255),
    halves=st.lists(st.integers(-700, 700), min_size=1, max_size=20),
    others=st.lists(st.floats(-1e4, 1e4, width=32), max_size=10),
)
def test_codes_are_those_of_quantize_linear(
    bits: int, scale: float, zero: int, halves: list[int], others: list[float]
) -> None:
    high = 2**bits - 1
    zero %= high + 1
    # Halves of a step are ties, wherever the zero point is.
    x = torch.cat([torch.tensor(halves) * torch.tensor(scale / 2), torch.tensor(others)])
    expected = codes_of_onnx(x, scale, zero, bits)
    s = torch.tensor(scale)
    for way in WAYS:
        with fused(way):
            by_zero = F.uniform_quantize(x, s, zero, 0, high)
            by_offset = F.offset_quantize(x, s, -zero * s, 0, high)
        assert zero_point(-zero * s, s, 0, high) == zero
        for found in (by_zero, by_offset):
            assert torch.equal(found, (expected - zero) * s)


@pytest.mark.parametrize("target", ["compact", "fast"])
@pytest.mark.parametrize("quantizer", ["lsq+", "dsq"])
def test_an_exported_network_rounds_ties_as_the_network(
    quantizer: str, target: Any, tmp_path: Path
) -> None:
    pytest.importorskip("onnxscript")
    from qunlearn.export import export_onnx

    layer = nn.Conv2d(1, 10, 1, bias=False)
    nn.init.constant_(layer.weight, 1.0)
    net = qu.quantize(
        nn.Sequential(layer, nn.Flatten()), qu.QuantSpec(8, 4, quantizer, first_last_bits=4)
    )
    # A grid of quarters whose zero is code 3.
    x = (torch.arange(-10, 31) / 8).reshape(-1, 1, 1, 1)
    qu.calibrate(net, x)
    inputs = net[0].activation_quantizer
    with torch.no_grad():
        if quantizer == "lsq+":
            inputs.scale.fill_(0.25)
            inputs.offset.fill_(-0.75)
        else:
            inputs.lower.fill_(-0.75)
            inputs.upper.fill_(3.0)
    grid = inputs.grid()
    assert (grid.scale, grid.zero_point) == (0.25, 3)
    expected = net.eval()(x).detach()
    exported = export_onnx(net, tmp_path / "net.onnx", x, target=target, least_agreement=0)
    runtime = ort.InferenceSession(exported.path.read_bytes())
    (found,) = runtime.run(None, {"images": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-5, atol=1e-5)
