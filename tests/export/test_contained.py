"""Tensors in other files are refused before a runtime sees them, wherever they are named."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qunlearn.errors import UserError
from qunlearn.export import OnnxNetwork, contained, export_run, network

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
helper = onnx.helper
FLOAT = onnx.TensorProto.FLOAT
SECRET = np.arange(2, dtype=np.float32)


def outside(name: str = "w", shape: tuple[int, ...] = (2,), kind: int = FLOAT) -> Any:
    """A tensor that is said to lie in a file of the working folder."""
    tensor = onnx.TensorProto(name=name, data_type=kind, dims=shape)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret.bin")
    return tensor


def inside(name: str, values: list[float], kind: int = FLOAT) -> Any:
    return helper.make_tensor(name, kind, [len(values)], values)


def value(name: str) -> Any:
    return helper.make_tensor_value_info(name, FLOAT, [2])


def model(nodes: list[Any], functions: tuple[Any, ...] = (), **more: Any) -> Any:
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], **more)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    made = helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=10)
    made.metadata_props.add(key="qunlearn", value=json.dumps({"format": 1}))
    return made


ADD = helper.make_node("Add", ["x", "w"], ["y"])


def constant(**attribute: Any) -> list[Any]:
    return [helper.make_node("Constant", [], ["w"], **attribute), ADD]


def in_branch() -> Any:
    branch = helper.make_graph(constant(value=outside()), "b", [], [value("y")])
    other = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])], "o", [], [value("y")], [outside("v")]
    )
    condition = inside("c", [True], onnx.TensorProto.BOOL)
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=other)
    return model([node], initializer=[condition])


def in_function() -> Any:
    opset = [helper.make_opsetid("", 21)]
    own = helper.make_function("own", "F", ["x"], ["y"], constant(value=outside()), opset)
    return model([helper.make_node("F", ["x"], ["y"], domain="own")], (own,))


def sparse(values: Any, indices: Any) -> Any:
    return helper.make_sparse_tensor(values, indices, [2])


def unmarked() -> Any:
    """The place is said, but not that the tensor is there."""
    tensor = outside()
    tensor.data_location = onnx.TensorProto.DEFAULT
    tensor.raw_data = SECRET.tobytes()
    return tensor


INDICES = onnx.TensorProto.INT64
PLACES: dict[str, Callable[[], Any]] = {
    "initializer": lambda: model([ADD], initializer=[outside()]),
    "not marked": lambda: model([ADD], initializer=[unmarked()]),
    "sparse values": lambda: model(
        [ADD], sparse_initializer=[sparse(outside(), inside("", [0, 1], INDICES))]
    ),
    "sparse indices": lambda: model(
        [ADD], sparse_initializer=[sparse(inside("w", [1, 2]), outside("", (2,), INDICES))]
    ),
    "attribute": lambda: model(constant(value=outside())),
    "sparse attribute": lambda: model(
        constant(sparse_value=sparse(outside(), inside("", [0, 1], INDICES)))
    ),
    "list": lambda: model([helper.make_node("Add", ["x", "w"], ["y"], more=[outside()])]),
    "branch": in_branch,
    "function": in_function,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a file that is nobody's business."""
    (tmp_path / "secret.bin").write_bytes(SECRET.tobytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("place", PLACES)
def test_a_tensor_elsewhere_is_refused(
    place: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "onnxruntime.InferenceSession", lambda *_: pytest.fail("the runtime has seen it")
    )
    file = folder / "m.onnx"
    file.write_bytes(PLACES[place]().SerializeToString())
    with pytest.raises(UserError, match=r"m.onnx' refers to another file for the tensor"):
        OnnxNetwork.open(file)


@pytest.mark.usefixtures("folder")
def test_the_runtime_would_read_it_unless_told_of_another_folder() -> None:
    import onnxruntime

    def found(*settings: tuple[str, str]) -> list[float]:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        for setting in settings:
            options.add_session_config_entry(*setting)
        content = PLACES["initializer"]().SerializeToString()
        session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
        return list(session.run(None, {"x": np.zeros(2, np.float32)})[0])

    assert found() == SECRET.tolist()  # so it must be kept from it
    with pytest.raises(Exception, match=r"secret\.bin"):
        found((network.EXTERNAL_FOLDER, network.NOWHERE))


def test_predict_and_evaluate_refuse_it(qunlearn, run_folder, folder):
    file = folder / "m.onnx"
    export_run(run_folder, file)
    changed = onnx.load(str(file))
    changed.graph.initializer[0].CopyFrom(outside(changed.graph.initializer[0].name))
    file.write_bytes(changed.SerializeToString())
    for words in (("predict", file, "cat.png"), ("evaluate", run_folder, "--onnx", file)):
        code, out, err = qunlearn(*words)
        assert (code, out) == (2, "")
        assert "refers to another file for the tensor" in err
        assert len(err.splitlines()) == 1


def test_only_regular_files_of_bounded_size_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(folder / "pipe.onnx")
    (folder / "folder.onnx").mkdir()
    (folder / "large.onnx").write_bytes(bytes(11))
    (folder / "text.onnx").write_bytes(b"\xff\xff")
    monkeypatch.setattr(contained, "LARGEST", 10)
    for name, says in {
        "pipe.onnx": "is not a regular file",
        "folder.onnx": "cannot be read: Is a directory|is not a regular file",
        "large.onnx": "has more than 10 bytes",
        "none.onnx": "cannot be read: No such file",
        "text.onnx": "is not an ONNX file",
    }.items():
        with pytest.raises(UserError, match=says):
            OnnxNetwork.open(folder / name)
