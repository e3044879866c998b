"""The target "fast": convolutions that ONNX Runtime computes exactly, in integers.

A convolution of codes becomes a product of two integer matrices, the patches of its input and its
weight. The sums are integers, and are scaled to floats once, BatchNorm included. ONNX Runtime's own
integer convolution rounds each output to 8 bits, and each bias to a step of the sums. That is a
little faster, but in a network of 4 bits each small error moves a code, which moves others: one
CIFAR-10 image in sixteen got another class.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qunlearn.export.nodes import before, constant, maker, numbers, only_user

Array = NDArray[Any]

MOST_PRODUCT = 16383
"""Processors without VNNI add two products of codes in 16 bits, and cut off what is beyond."""

GEOMETRY = ("pads", "strides", "dilations")


@dataclass(frozen=True)
class Codes:
    """How an input is rounded: to unsigned 8-bit codes, of which `low` to `high` are used."""

    scale: float
    zero: int
    low: int
    high: int


@dataclass(frozen=True)
class Layer:
    """A convolution of codes, with the BatchNorm behind it.

    Attributes:
        node: The convolution.
        rounding: The QuantizeLinear of its input.
        codes: Of its input.
        weight: Integers, negated where BatchNorm's factor is negative.
        scale: Of each output channel, with the size of BatchNorm's factor.
        bias: Of each output channel, with BatchNorm's summand.
        end: The output, after BatchNorm.
    """

    node: Any
    rounding: Any
    codes: Codes
    weight: Array
    scale: Array
    bias: Array
    end: Any


def in_integers(graph: Any) -> int:
    """Rewrite the convolutions of a graph that can be computed in integers; returns how many."""
    layers = [layer for node in graph if node.op_type == "Conv" and (layer := layer_of(node))]
    _weights_to_floats(graph)  # of other layers: low-bit codes would be unpacked for each batch
    codes = {layer.rounding: _coded(layer) for layer in layers}
    for layer in layers:
        layer.end.replace_all_uses_with(_product(layer, codes[layer.rounding]))
    return len(layers)


def codes_of(node: Any) -> Codes | None:
    """The codes that a layer's input is rounded to, if the node is its QuantizeLinear."""
    quantizes = node.op_type == "QuantizeLinear"
    back = only_user(node.outputs[0], "DequantizeLinear") if quantizes else None
    clip = None if back is None else only_user(back.outputs[0], "Clip")
    if clip is None:
        return None
    scale, zero, *ends = map(numbers, (*node.inputs[1:], *clip.inputs[1:]))
    shift = 128 if zero.dtype == np.int8 else 0
    low, high = (int(np.round(end / scale)) + int(zero) + shift for end in ends)
    return Codes(float(scale), int(zero) + shift, low, high)


def layer_of(node: Any) -> Layer | None:
    """A convolution as one of codes, if its weight is of codes that 8 bits hold."""
    clip = maker(node.inputs[0], "Clip")
    back = None if clip is None else maker(clip.inputs[0], "DequantizeLinear")
    first = None if back is None else maker(back.inputs[0], "QuantizeLinear")
    codes = None if first is None else codes_of(first)
    weight_and_scale = integer_weight(node.inputs[1])
    if codes is None or weight_and_scale is None or not plain(node):
        return None
    weight, scale = weight_and_scale
    bias = numbers(node.inputs[2]) if len(node.inputs) > 2 else 0
    bias = np.broadcast_to(bias, scale.shape).astype(np.float64)
    end = node.outputs[0]
    if (norm := only_user(end, "BatchNormalization")) is not None:
        factor, summand = (numbers(value).astype(np.float64) for value in norm.inputs[1:3])
        weight = weight * np.where(factor < 0, -1, 1).reshape(-1, *[1] * (weight.ndim - 1))
        scale, bias, end = scale * np.abs(factor), bias * factor + summand, norm.outputs[0]
    if weight.min() < -128 or weight.max() > 127:
        return None  # 8 bits whose -128 BatchNorm turns over, or PACT's 8 bits and a half step
    return Layer(node, first, codes, weight, scale, bias, end)


def plain(node: Any) -> bool:
    """Whether a convolution is one product: not of groups, and with its padding in numbers."""
    attributes = node.attributes
    padded = attributes["auto_pad"].as_string() == "NOTSET" if "auto_pad" in attributes else True
    return (
        padded and all(key in attributes for key in GEOMETRY) and attributes["group"].as_int() == 1
    )


def integer_weight(value: Any) -> tuple[Array, Array] | None:
    """A stored weight as integers, and the scale of each output channel."""
    half = maker(value, "Add")  # PACT's half step
    back = maker(value if half is None else half.inputs[0], "DequantizeLinear")
    if back is None or numbers(back.inputs[0]) is None:
        return None
    codes, scale, zero = (numbers(each).astype(np.float64) for each in back.inputs)
    steps = codes - zero.reshape(-1, *[1] * (codes.ndim - 1))
    scale = np.broadcast_to(scale, len(codes))
    return (steps, scale) if half is None else (2 * steps + 1, scale / 2)


def _weights_to_floats(graph: Any) -> None:
    for node in [node for node in graph if node.op_type == "DequantizeLinear"]:
        if (weight_and_scale := integer_weight(node.outputs[0])) is not None:
            steps, scale = (each.astype(np.float32) for each in weight_and_scale)
            values = steps * scale.reshape(-1, *[1] * (steps.ndim - 1))
            name = node.inputs[0].name.removesuffix("_quantizer.codes")
            node.outputs[0].replace_all_uses_with(constant(graph, name, values))


def _coded(layer: Layer) -> Any:
    """The codes of a layer's input."""
    node, codes = layer.rounding, layer.codes
    name = f"{node.inputs[0].name}.codes"
    grid = (np.float32(codes.scale), np.uint8(codes.zero))
    result = before(node, "QuantizeLinear", node.inputs[0], *_constants(node, name, *grid))
    if (codes.low, codes.high) != (0, 255):
        ends = (np.uint8(codes.low), np.uint8(codes.high))
        result = before(node, "Clip", result, *_constants(node, name, *ends))
    return result


def _product(layer: Layer, codes: Any) -> Any:
    """The layer as a product of matrices: of integers, where ONNX Runtime sees both rounded."""
    node, name = layer.node, layer.end.name
    grid = _constants(node, name, np.float32(layer.codes.scale), np.uint8(layer.codes.zero))
    inputs = before(node, "DequantizeLinear", _patches(layer, codes), *grid)
    wide = np.abs(layer.weight).max() * layer.codes.high > MOST_PRODUCT
    kind, zero = (np.uint8, 128) if wide else (np.int8, 0)
    # Rows as the patches have them: every place of the kernel, and in it every channel.
    matrix = np.moveaxis(layer.weight, (0, 1), (-1, -2)).reshape(-1, len(layer.weight)) + zero
    zeros = np.full(len(layer.scale), zero, kind)
    stored = _constants(node, name, matrix.astype(kind), layer.scale, zeros)
    weight = before(node, "DequantizeLinear", *stored, axis=1)
    sums = before(node, "MatMul", inputs, weight)
    result = before(node, "Add", sums, *_constants(node, name, layer.bias))
    rank = layer.weight.ndim
    return before(node, "Transpose", result, perm=[0, rank - 1, *range(1, rank - 1)])


def _patches(layer: Layer, codes: Any) -> Any:
    """The codes that each output sees: a row for each place of the output, channels last."""
    node, name = layer.node, layer.end.name
    sizes, outputs = (value.shape[2:] for value in (node.inputs[0], node.outputs[0]))
    rank, channels = len(sizes), layer.weight.shape[1]
    x = before(node, "Transpose", codes, perm=[0, *range(2, rank + 2), 1])
    if layer.weight[0, 0].size == 1 and sizes == outputs:
        return x
    # One row more, of zeros, is what lies outside.
    shape, pads, zero, back = _constants(
        node,
        name,
        np.array([0, -1, channels]),
        np.array([0, 0, 0, 0, 1, 0]),
        np.uint8(layer.codes.zero),
        np.array([0, *outputs, layer.weight[0].size]),
    )
    x = before(node, "Pad", before(node, "Reshape", x, shape), pads, zero)
    indices = _constants(node, name, places(sizes, outputs, layer))
    x = before(node, "Gather", x, *indices, axis=1)
    return before(node, "Reshape", x, back)


def places(sizes: Sequence[int], outputs: Sequence[int], layer: Layer) -> Array:
    """A row for each output with the numbers of the pixels that it sees; the last lies outside."""
    pads, strides, dilations = (layer.node.attributes[key].as_ints() for key in GEOMETRY)
    count = int(np.prod(sizes))
    around = list(zip(pads[: len(sizes)], pads[len(sizes) :], strict=True))
    numbers = np.pad(np.arange(count).reshape(sizes), around, constant_values=count)
    columns = []
    for place in itertools.product(*map(range, layer.weight.shape[2:])):
        starts = np.array(place) * dilations
        stops = starts + (np.array(outputs) - 1) * strides + 1
        columns.append(numbers[tuple(map(slice, starts, stops, strides))].ravel())
    return np.stack(columns, axis=1).astype(np.int32)


def _constants(node: Any, name: str, *values: Any) -> list[Any]:
    return [constant(node.graph, name, np.asarray(each)) for each in values]
