"""The benchmarks run; what they measure is not tested, but how they count is."""

from pathlib import Path

import pytest
import torch

import qunlearn as qu


@pytest.fixture(autouse=True)
def found(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "benchmarks")


def test_both_sides_of_a_ratio_run():
    from forgetting import batching
    from steps import Written, build, step, swapped
    from timing import by_turns

    ours = step(build("resnet18", 0.125, qu.QuantSpec()), batch=4)
    theirs = step(swapped(build("resnet18", 0.125), Written), batch=4)
    for this, other in ((batching(8), ours), (ours, theirs)):
        row = by_turns("x", this, "y", other, repeats=3)
        assert 0 < row.lower <= row.median <= row.upper


def test_forgetting_has_whole_batches_and_every_part_to_measure():
    from forgetting import random_split

    split = random_split(640, 64, test=20)
    assert (len(split.forget), len(split.retain)) == (64, 9 * 64)
    assert {"forget", "retain", "test"} <= split.measured().keys()


def test_saved_bytes_are_counted():
    from timing import peak_bytes, saved_bytes

    def work():
        torch.empty(3000)
        return torch.empty(1000)

    assert saved_bytes(work) == 4 * 1000
    assert peak_bytes(work) == 4 * 3000


def test_a_single_figure_counts_once():
    from timing import spread

    row = spread("x", "y", [2.0])
    assert (row.lower, row.median, row.upper, row.repeats) == (2, 2, 2, 1)


def test_a_straight_line_is_found():
    from growth import straight

    found = straight([1, 2, 4], [5, 7, 11])
    assert found == pytest.approx({"slope": 2, "start": 3, "r2": 1})


def test_the_floor_is_every_convolution_and_batch_norm(monkeypatch):
    import floor
    from steps import build

    seen = []
    monkeypatch.setattr(floor, "kernel", lambda module, shape: lambda: seen.append(type(module)))
    floor.bare_kernels(build("resnet18", 0.125), batch=2)()
    assert seen.count(torch.nn.Conv2d) == seen.count(torch.nn.BatchNorm2d) == 20


def test_the_time_that_quantizers_take_is_found():
    from floor import shares
    from steps import build, step

    found = shares(step(build("resnet18", 0.125, qu.QuantSpec()), batch=2))
    assert found["quantizers"] > 0
    assert sum(found.values()) == pytest.approx(1)


def test_the_products_of_an_export_are_those_of_the_convolutions():
    pytest.importorskip("onnx")
    ort = pytest.importorskip("onnxruntime")
    import numpy as np
    from export import product, products

    shapes = products(qu.ModelSpec("resnet18", 10, 3, 32, 0.125).build())
    assert len(shapes) == 20
    assert (shapes[0], shapes[-1]) == ((1024, 27, 8), (16, 576, 64))
    patches = np.arange(6, dtype=np.uint8).reshape(2, 3)
    weight = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    for left, right in ((patches, weight), (patches.astype("f4"), weight.astype("f4"))):
        (found,) = ort.InferenceSession(product(left, right)).run(None, {"patches": left})
        assert (found == patches.astype(int) @ weight.astype(int)).all()


def test_what_lira_found_is_collected(tmp_path):
    import json

    from collect import attacks

    rows = [{"method": "retrain", "seeds": 3}, {"method": "ft", "seeds": 3, "lira": {"AUC": [0.6]}}]
    (tmp_path / "main").mkdir()
    (tmp_path / "main" / "table.json").write_text(json.dumps({"rows": rows}))
    assert attacks(tmp_path) == {"ft": {"seeds": 3, "AUC": [0.6]}}


def test_where_oeu_stands():
    from standing import line, standing

    def cell(name, revision, figure, entropy):
        scores = dict.fromkeys(("FA", "RA", "TA", "MIA"), figure)
        entropies = {"entropy": {"forget": entropy}}
        return {"cell": name, "revision": revision, "AG": abs(figure - 50), **scores, **entropies}

    found = standing(
        [
            cell("cells/retrain/seed0", 1, 50.0, 0.3),
            cell("cells/retrain/seed1", 1, 52.0, 0.4),
            cell("cells/calibrated/seed0", 1, 50.0, 0.1),  # of old code: does not count
            cell("cells/calibrated/seed0-4d", 2, 53.0, 0.5),
            cell("cells/ft/seed0", 1, 90.0, 0.0),
            cell("cells/ft/seed0-aa", 1, 56.0, 0.0),
            cell("cells/ga/seed0", 1, 58.0, 0.0),
            cell("trials/ga/1", 1, 50.0, 0.0),
        ]
    )
    assert (found["revision"], found["floor"], found["AG"]) == (2, 2.0, [3.0])
    assert found["others"] == [("ft", 6.0), ("ga", 8.0)]
    assert found["MIA"] == ([3.0], 2.0)
    assert line("x, 10", found) == (
        "| x, 10, 2 | 2.00 | 3.00 | ft 6.00 | 1.00 of 4.00 | +3.0 | 2.0 | +0.20 | 0.10 |"
    )


def test_each_cell_is_audited_once_beside_its_retrain(tmp_path, run_folder, monkeypatch):
    import audits

    from qunlearn.metrics import average_gap
    from qunlearn.runs.forget import forget_run
    from qunlearn.runs.metrics import metrics_of
    from qunlearn.runs.request import ForgetConfig
    from qunlearn.store.files import read_json
    from qunlearn.store.run import Run

    out, asked = tmp_path / "study" / "random-10", {"run": run_folder, "random": 0.1}
    asked |= {"threads": 1, "skip_probe": True}

    def make(method, seed):
        settings = {"epochs": 1, "seed": seed}
        cell = out / "cells" / method / f"seed{seed}"
        forget_run(ForgetConfig.parse({**asked, "method": method, "settings": settings}), cell)
        return Run.open(cell).info.model_sha256

    def audited():
        monkeypatch.setattr("sys.argv", ["audits.py", str(out), "--results", str(tmp_path / "r")])
        audits.main()
        return {path.stem: read_json(path) for path in (tmp_path / "r").rglob("*.json")}

    monkeypatch.setattr(audits, "NETWORKS", ("differ",))
    monkeypatch.setattr(audits, "run_audit", lambda name, case: {"verdict": name, "at": len(ran)})
    ran = []
    first, second, tuned = make("retrain", 0), make("retrain", 1), make("ft", 0)
    before = audited()
    assert before["request"]["copies"] == {"verdict": "copies", "at": 0}
    pairs = {
        name: [(cell["model_sha256"], cell["reference_sha256"]) for cell in content["cells"]]
        for name, content in before.items()
        if name != "request"
    }
    original = Run.open(run_folder).info.model_sha256
    assert pairs == {
        "original": [(original, first), (original, second)],
        "retrain": [(first, second), (second, first)],
        "ft": [(tuned, first)],
    }
    ours, theirs = (
        metrics_of(Run.open(out / "cells" / name / "seed0")) for name in ("ft", "retrain")
    )
    gap = average_gap(ours.figures, theirs.figures)
    assert before["ft"]["cells"][0]["AG"] == pytest.approx(gap)

    ran.append("again")
    assert audited() == before
    make("ft", 1)
    after = audited()
    assert [cell["audits"]["differ"]["at"] for cell in after["ft"]["cells"]] == [0, 1]
    assert after["retrain"] == before["retrain"]


def test_figures_of_seeds_stand_in_one_table():
    from audit_tables import correlation, figure, verdicts

    def cell(value, verdict, gap):
        ends = {"low": value - 1, "high": value + 1}
        shown = {"name": "x", "value": value, "unit": "points", "interval": ends}
        audits = {"bits": {"verdict": verdict, "figures": [shown]}}
        return {"AG": gap, "audits": audits | {"differ": {"divergence": gap and gap**3}}}

    cells = [cell(1.0, "pass", 1.0), cell(4.0, "fail", 2.0)]
    assert verdicts(cells, "bits") == "fail 1, pass 1"
    assert figure(cells, "bits", "x") == "2.5 (0.0 to 5.0)"
    assert figure(cells, "relearn", "x") == ""
    assert "too few" in correlation(cells)
    many = [cell(1.0, "pass", gap) for gap in (1.0, 2.0, 3.0, 4.0, 5.0)]
    assert "over 5 cells: rank correlation 1.00" in correlation([*many, cell(1.0, "pass", None)])
