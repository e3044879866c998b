"""Whether the quantizers are compiled: as asked, or where it pays; and it is put on record."""

from __future__ import annotations

import pytest
from lightning_fabric import Fabric

import qunlearn as qu
from qunlearn.training import devices
from qunlearn.training.config import ComputeConfig
from qunlearn.training.devices import LARGE, compiles, make_fabric


def test_compiling_is_as_asked_or_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "why_not", lambda: None)
    on, off = (make_fabric(ComputeConfig(compile=way)) for way in ("on", "off"))
    assert compiles(on, 1)
    assert not compiles(off, 10 * LARGE)
    for auto in (make_fabric(ComputeConfig()), Fabric(accelerator="cpu")):
        assert compiles(auto, LARGE)
        assert not compiles(auto, LARGE - 1)


def test_a_machine_without_a_compiler_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "why_not", lambda: "no C++ compiler")
    fabric = make_fabric(ComputeConfig(compile="on"))
    with pytest.warns(UserWarning, match="not compiled.*no C\\+\\+ compiler"):
        assert not compiles(fabric, 1)


def test_the_history_says_which_it_was() -> None:
    split = qu.Split.make(qu.load_dataset("digits", subset=64))
    spec = qu.ModelSpec("cnn", classes=10, channels=1, size=8)
    rows = []
    for way in ("on", "off"):
        model = qu.quantize(spec.build(seed=0), qu.QuantSpec(4, 4))
        fabric = make_fabric(ComputeConfig(compile=way))
        qu.train(model, split, fabric=fabric, on_epoch=rows.append, epochs=1, batch_size=32)
    assert [row["compiled"] for row in rows] == [devices.why_not() is None, False]
    assert rows[0]["loss"] == pytest.approx(rows[1]["loss"], rel=1e-4)
