"""Helper functions for onnx-ir graphs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from qunlearn.export.extra import needed


def numbers(value: Any) -> Any:
    """The array of a constant in the graph; None if the value is computed."""
    stored = None if value is None else value.const_value
    return None if stored is None else stored.numpy()


def only_user(value: Any, kind: str) -> Any:
    """The only consumer of a value, if it has that operator type."""
    if value.is_graph_output() or len(value.uses()) != 1:
        return None
    (user,) = value.consumers()
    return user if user.op_type == kind else None


def maker(value: Any, kind: str) -> Any:
    """The producer of a value, if it has that operator type."""
    node = None if value is None else value.producer()
    return node if node is not None and node.op_type == kind else None


def constant(graph: Any, name: str, values: Any) -> Any:
    """Add a constant to the graph; a number is appended to a name that exists."""
    ir = needed("onnx_ir")
    names = itertools.chain([name], (f"{name}.{number}" for number in itertools.count(1)))
    name = next(free for free in names if free not in graph.initializers)
    wide = values.dtype == np.float64
    tensor = ir.tensor(values.astype(np.float32) if wide else values, name=name)
    kind = ir.TensorType(tensor.dtype)
    value = ir.Value(name=name, shape=tensor.shape, type=kind, const_value=tensor)
    graph.initializers[name] = value
    return value


def before(node: Any, kind: str, *inputs: Any, **attributes: Any) -> Any:
    """Insert a new node before another; returns its output."""
    new = needed("onnx_ir").node(kind, inputs, attributes)
    node.graph.insert_before(node, new)
    return new.outputs[0]
