"""Whether the quantizers are compiled: as asked, or where it pays; and it is put on record."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric

import qunlearn as qu
from qunlearn.errors import UserError
from qunlearn.quant import fuse
from qunlearn.store.history import Epoch
from qunlearn.training import checkpoint, devices
from qunlearn.training.config import ComputeConfig
from qunlearn.training.devices import LARGE, compiles, make_fabric


def test_compiling_is_as_asked_or_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "why_not", lambda: None)
    on, off = (make_fabric(ComputeConfig(compile=way)) for way in ("on", "off"))
    assert compiles(on, 1)
    assert not compiles(off, 10 * LARGE)
    for auto in (make_fabric(ComputeConfig()), Fabric(accelerator="cpu")):
        assert compiles(auto, LARGE)
        assert compiles(auto, 1)
    elsewhere: Any = SimpleNamespace(device=torch.device("cuda"))
    assert compiles(elsewhere, LARGE)
    assert not compiles(elsewhere, LARGE - 1)


def test_a_machine_without_a_compiler_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "why_not", lambda: "no C compiler")
    fabric = make_fabric(ComputeConfig(compile="on"))
    with pytest.warns(UserWarning, match="not compiled.*no C compiler"):
        assert not compiles(fabric, 1)
    with pytest.warns(UserWarning, match="not compiled.*no C compiler"):
        assert not compiles(make_fabric(ComputeConfig()), LARGE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not compiles(make_fabric(ComputeConfig()), LARGE - 1)  # nobody would notice
    monkeypatch.setattr(devices, "NOTICED", -1)  # but a compiler that was waited for, they do
    with pytest.warns(UserWarning, match="not compiled.*no C compiler"):
        assert not compiles(make_fabric(ComputeConfig()), LARGE - 1)


def test_the_history_says_which_it_was() -> None:
    split = qu.Split.make(qu.load_dataset("digits", subset=64))
    spec = qu.ModelSpec("cnn", classes=10, channels=1, size=8)
    rows = []
    for way in ("on", "off"):
        model = qu.quantize(spec.build(seed=0), qu.QuantSpec(4, 4))
        fabric = make_fabric(ComputeConfig(compile=way))
        qu.train(model, split, fabric=fabric, on_epoch=rows.append, epochs=1, batch_size=32)
    assert [row.compiled for row in rows] == [devices.why_not() is None, False]
    assert rows[0].scalars["loss"] == pytest.approx(rows[1].scalars["loss"], rel=1e-4)


def test_a_network_in_full_precision_needs_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[torch.dtype] = []
    monkeypatch.setattr(fuse, "library", compiled.append)
    fuse.why_not.cache_clear()
    split = qu.Split.make(qu.load_dataset("digits", subset=64))
    model = qu.ModelSpec("cnn", classes=10, channels=1, size=8).build(seed=0)
    rows: list[Epoch] = []
    fabric = make_fabric(ComputeConfig(compile="on"))
    qu.train(model, split, fabric=fabric, on_epoch=rows.append, epochs=1, batch_size=32)
    assert [row.compiled for row in rows] == [False]
    qu.evaluate(model, split)
    fuse.why_not.cache_clear()
    assert compiled == []


@pytest.mark.parametrize("begun", ["on", "off"])
def test_a_run_resumes_with_the_same_kernels(
    begun: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if devices.why_not():
        pytest.skip("no compiler here")
    split = qu.Split.make(qu.load_dataset("digits", subset=64))
    spec = qu.ModelSpec("cnn", classes=10, channels=1, size=8)
    other = "off" if begun == "on" else "on"

    def train(way: str, stop: bool) -> list[Epoch]:
        rows: list[Epoch] = []

        def keep(row: Epoch) -> None:
            rows.append(row)
            if stop and len(rows) == 2:  # the state after the first epoch is kept by then
                raise KeyboardInterrupt

        model = qu.quantize(spec.build(seed=0), qu.QuantSpec(4, 4))
        fabric = make_fabric(ComputeConfig(compile=way))
        settings = {"epochs": 3, "batch_size": 32, "checkpoint": tmp_path / "state"}
        qu.train(model, split, fabric=fabric, on_epoch=keep, **settings)
        return rows

    monkeypatch.setattr(checkpoint, "SHARE", 1e9)
    with pytest.raises(KeyboardInterrupt):
        train(begun, stop=True)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(devices, "why_not", lambda: "no C compiler")
        if begun == "on":
            with pytest.raises(UserError, match=r"are not available now: no C compiler"):
                train(other, stop=False)
    assert [row.compiled for row in train(other, stop=False)] == [begun == "on"] * 3
