"""Conversion of a model to an ONNX graph of standard operators."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import qunlearn.export.codes  # noqa: F401  (it makes the operators known)
from qunlearn.errors import UserError
from qunlearn.export.extra import needed
from qunlearn.export.nodes import constant

INPUT, OUTPUT = "images", "logits"

NEWEST_TYPES = {25: 13, 23: 11, 21: 10}
"""The format version that each opset came with; INT2 is unknown to older ones."""


def to_graph(model: nn.Module, example: Tensor, opset: int) -> Any:
    """The model as an onnx-ir model with a dynamic batch, codes in 8 bits, nothing private."""
    needed("onnx"), needed("onnxscript")
    with _quiet():
        program = _program(model, example)
        graph = _translated(program, opset)
    for node in graph.graph:
        if node.op_type == "BatchNormalization":
            _shorten(node)
    graph.ir_version = next(v for least, v in NEWEST_TYPES.items() if opset >= least)
    clean(graph)
    return graph


def narrow(graph: Any, opset: int) -> None:
    """Store the codes of all weights at their bit width."""
    for node in list(graph.graph):
        if node.op_type == "DequantizeLinear":
            _narrow(node, opset)
    clean(graph)


def to_bytes(graph: Any) -> bytes:
    """The graph as the content of a file."""
    content: bytes = needed("onnx_ir").to_proto(graph).SerializeToString(deterministic=True)
    return content


def _program(model: nn.Module, example: Tensor) -> Any:
    batch = {0: torch.export.Dim("batch")}
    try:
        with redirect_stderr(StringIO()):  # where torch prints how far it came
            return torch.export.export(model, (example,), dynamic_shapes=(batch,), strict=False)
    except Exception as error:
        raise UserError(
            "The model cannot be written as a graph with any number of images at a time "
            f"({_reason(error)}); let its forward use tensor operations alone, decide nothing by "
            "their values, and fix no number of images."
        ) from None


def _translated(program: Any, opset: int) -> Any:
    try:
        exported = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            opset_version=opset,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes=({0: "batch"},),  # nothing but the name: the program has the shapes
            custom_translation_table=_translations(),
        )
    except torch.onnx.errors.OnnxExporterError as error:
        raise UserError(_unsupported(program, error)) from None
    assert exported is not None
    return exported.model


def _translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    op = needed("onnxscript").opset21

    def translate_rounded(x, scale, zero, least, most):  # type: ignore[no-untyped-def]
        codes = op.QuantizeLinear(x, scale, zero)
        # Clipped as values, also where eight bits need no clip: where the layer's input comes right
        # from DequantizeLinear, ONNX Runtime computes in integers, for which it rounds the bias to
        # the weight's coarse steps, overflows on some processors and refuses two bits.
        return op.Clip(op.DequantizeLinear(codes, scale, zero), least, most)

    def translate_dequantized(codes, scale, zero):  # type: ignore[no-untyped-def]
        return op.DequantizeLinear(codes, scale, zero, axis=0)

    return {
        torch.ops.qunlearn.rounded.default: translate_rounded,
        torch.ops.qunlearn.dequantized.default: translate_dequantized,
    }


def _unsupported(program: Any, error: BaseException) -> str:
    """The message for an unsupported operator: names its layer."""
    errors = [error]
    while errors[-1].__cause__ is not None:
        errors.append(errors[-1].__cause__)
    match = re.search(r"OpOverload\(op='([\w.]+)'", "\n".join(map(str, errors)))
    if match is None:
        return (
            f"The model has no ONNX form ({_reason(errors[-1])}); find the layer by exporting "
            "parts of the model, and use another one there."
        )
    for node in program.graph.nodes:
        # The operator may be part of another one's decomposition, which has its name then.
        if match[1].rsplit(".", 1)[-1] in str(node.target):
            stack = list(node.meta.get("nn_module_stack", {}).values())
            name, kind = stack[-1] if stack else ("", "")
            kind = (kind if isinstance(kind, str) else kind.__name__).rsplit(".", 1)[-1]
            where = f"The layer {name!r} ({kind})" if name else "The model itself"
            return f"{where} has no ONNX form, because of {match[1]}; use another layer there."
    return f"The model has no ONNX form, because of {match[1]}; use other layers."


def _reason(error: BaseException) -> str:
    """The first line of another library's error message."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")


def _narrow(node: Any, opset: int) -> None:
    """Store the codes of a weight in the narrowest integer type."""
    codes, _, zero = node.inputs
    if codes.const_value is None:
        return
    values, zeros = codes.const_value.numpy(), zero.const_value.numpy()
    kind = _narrowest(np.append(values, zeros), opset)
    name = codes.name.removesuffix("_quantizer.codes")  # the weight's own
    node.replace_input_with(0, constant(node.graph, name, values.astype(kind)))
    node.replace_input_with(2, constant(node.graph, f"{name}.zero", zeros.astype(kind)))


def _narrowest(values: Any, opset: int) -> Any:
    """The smallest type of that sign that an opset knows and that holds the values."""
    kinds = needed("ml_dtypes")
    sign = "int" if values.dtype == np.int8 else "uint"
    for bits, since in ((2, 25), (4, 21)):
        kind = getattr(kinds, f"{sign}{bits}")
        limits = kinds.iinfo(kind)
        if opset >= since and limits.min <= values.min() and values.max() <= limits.max:
            return np.dtype(kind)
    return values.dtype


def _shorten(node: Any) -> None:
    """Two vectors for a BatchNorm instead of four: x·a + b, the others shared by all of a width."""
    _, *parameters = node.inputs
    if any(value.const_value is None for value in parameters):
        return
    gain, bias, mean, variance = (v.const_value.numpy().astype(np.float64) for v in parameters)
    factor = gain / np.sqrt(variance + node.attributes["epsilon"].as_float())
    width, name = len(factor), parameters[0].name.removesuffix(".weight")
    shared = node.graph.initializers
    zeros, ones = f"zeros.{width}", f"ones.{width}"
    inputs = (
        constant(node.graph, f"{name}.factor", factor),
        constant(node.graph, f"{name}.summand", bias - mean * factor),
        shared.get(zeros) or constant(node.graph, zeros, np.zeros(width)),
        shared.get(ones) or constant(node.graph, ones, np.ones(width)),
    )
    for position, value in enumerate(inputs, start=1):
        node.replace_input_with(position, value)
    node.attributes["epsilon"] = needed("onnx_ir").AttrFloat32("epsilon", 0.0)


def clean(graph: Any) -> None:
    """Remove unused nodes, and the source paths and lines that the exporter records."""
    needed("onnx_ir").passes.common.RemoveUnusedNodesPass()(graph)
    for value in graph.graph.initializers.values():
        value.metadata_props.clear()
    for node in graph.graph:
        node.metadata_props.clear()
        node.doc_string = None
        for value in node.outputs:
            value.metadata_props.clear()
    for value in (*graph.graph.inputs, *graph.graph.outputs):
        value.metadata_props.clear()
    graph.graph.metadata_props.clear()
    graph.metadata_props.clear()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's warnings and log messages."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
