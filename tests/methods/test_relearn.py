"""The relearning probe tells what is gone from what is hidden."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from conftest import trained_once
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from qunlearn.data import Split, load_dataset
from qunlearn.methods import constants, forget
from qunlearn.methods import relearn as module
from qunlearn.methods.constants import CLOSE, FEWEST
from qunlearn.methods.relearn import Relearning, relearn
from qunlearn.metrics import accuracy, margin
from qunlearn.models import ModelSpec
from qunlearn.training.config import ComputeConfig
from qunlearn.training.devices import make_fabric
from qunlearn.training.inference import predict
from qunlearn.training.train import train

CLASS = 3
PERCENT = st.floats(0, 100)


@pytest.fixture(autouse=True)
def whole_probe(monkeypatch):
    """Elsewhere the tests shorten it."""
    monkeypatch.setattr(module, "PROBE_STEPS", constants.PROBE_STEPS)


@pytest.fixture(scope="module")
def half() -> Split:
    """Half of the threes are to be forgotten, the other half is retained."""
    split = Split.make(load_dataset("digits", subset=300))
    rows = split.retain[split.data.labels[split.retain] == CLASS]
    return split.forget_ids([split.data.ids[row] for row in rows[::2].tolist()])


@pytest.fixture(scope="module")
def never_saw(half, tmp_path_factory) -> nn.Module:
    """A network that was trained on what is retained alone."""
    settings = {"part": "retain", "epochs": 15, "batch_size": 30, "lr": 0.05}
    return trained_once(
        tmp_path_factory,
        "never-saw",
        lambda: ModelSpec("cnn", 10, 1, 8, 1.0).build(0),
        lambda model: train(model, half, **settings),
    )


@pytest.fixture(scope="module")
def hidden(never_saw) -> nn.Module:
    """A network that denies all threes by one number of its last layer.

    All that tells a three is still there, and so any retained three brings all of them back. The
    unseen samples hardly rise for it: one in ten of them is a three.
    """
    model = copy.deepcopy(never_saw)
    last = [layer for layer in model.modules() if isinstance(layer, nn.Linear)][-1]
    with torch.no_grad():
        last.bias[CLASS] -= 8.0
    return model


@pytest.fixture(scope="module")
def fabric():
    return make_fabric(ComputeConfig())


def test_what_a_network_never_saw_does_not_come_back(never_saw, half, fabric):
    found = relearn(never_saw, half, fabric)
    assert found.deep, found


def test_what_the_last_layer_hides_comes_back(hidden, half, fabric):
    found = relearn(hidden, half, fabric)
    assert found.before < 10
    assert found.after > 60
    assert not found.deep
    # That it was aimed so high would excuse it.
    assert relearn(hidden, half, fabric, target=99.0).deep


def test_the_figures_are_those_of_the_networks_and_the_model_stays(
    never_saw, half, fabric, monkeypatch
):
    copies, optimize = [], module.optimize

    def watched(fabric, model, *args, **more):
        copies.append(model)
        return optimize(fabric, model, *args, **more)

    before = copy.deepcopy(never_saw.state_dict())
    monkeypatch.setattr(module, "optimize", watched)
    found = relearn(never_saw, half, fabric, target=70.0)
    (tuned,) = copies
    for name, value in never_saw.state_dict().items():
        assert value.equal(before[name]), name
    assert any(not value.equal(before[name]) for name, value in tuned.state_dict().items())
    labels = half.data.labels

    def confidences(model, part):
        return 100 * margin(predict(model, half.data, part), labels[part]).sigmoid().double()

    parts = (half.forget, half.held_out)
    early, late = ([confidences(m, part) for part in parts] for m in (never_saw, tuned))
    means = [float(each.mean()) for each in (*early, *late)]
    figures = (found.before, found.unseen_before, found.after, found.unseen_after)
    assert figures == pytest.approx(means, abs=1e-3)
    variance = sum(
        float((b - a).var(correction=0)) / len(a) for a, b in zip(early, late, strict=True)
    )
    assert found.chance == pytest.approx(1.96 * variance**0.5, rel=1e-3)
    assert found.accuracy == accuracy(predict(tuned, half.data, half.forget), labels[half.forget])
    batches = -(-len(half.retain) // 64)
    assert found.steps == min(constants.PROBE_STEPS, constants.PROBE_PASSES * batches)
    assert (found.target, found.lr) == (70.0, constants.PROBE_LR)


def test_no_forgotten_sample_is_shown(never_saw, half, fabric):
    images = half.data.images.float() / 255
    images[half.forget] = torch.nan
    poisoned = replace(half, data=replace(half.data, images=images))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PROBE_STEPS", 4)
        found = relearn(never_saw, poisoned, fabric)
    assert found.unseen_after == found.unseen_after  # trained on no NaN, which would have spread
    assert found.after != found.after


def test_a_probe_that_diverges_loses_no_network(never_saw, half, monkeypatch):
    monkeypatch.setattr(module, "PROBE_LR", 1e30)
    result = forget(never_saw, half, "ft", epochs=1)
    assert result.findings.relearning is None
    assert all(value.isfinite().all() for value in result.model.state_dict().values())


@pytest.mark.parametrize("count", [0, FEWEST - 1, FEWEST])
def test_with_too_few_unseen_samples_there_is_nothing_to_compare_with(
    never_saw, half, fabric, count, monkeypatch
):
    monkeypatch.setattr(module, "PROBE_STEPS", 1)
    few = replace(half, held_out=half.held_out[:count], test=half.test[:0])
    assert (relearn(never_saw, few, fabric) is None) == (count < FEWEST)
    assert relearn(never_saw, replace(few, test=half.test), fabric) is not None


def test_unseen_samples_of_a_class_that_is_gone_do_not_count(never_saw, half, fabric, monkeypatch):
    gone = Split.make(half.data).forget_class(CLASS)
    rows = gone.test[gone.data.labels[gone.test] == CLASS]
    assert len(rows) >= FEWEST
    only = replace(gone, held_out=rows, test=rows)
    assert relearn(never_saw, only, fabric) is None


def test_each_method_is_probed_unless_it_is_not_wanted(never_saw, half, monkeypatch):
    monkeypatch.setattr(module, "PROBE_STEPS", 1)
    for name, settings in (("ft", {"epochs": 1}), ("calibrated", {"steps": 1})):
        result = forget(never_saw, half, name, **settings)
        aimed = result.findings.calibration
        assert result.findings.relearning.target == (aimed.target if aimed else None)
        skipped = forget(never_saw, half, name, probe=False, **settings)
        assert skipped.findings.relearning is None
        for key, value in result.model.state_dict().items():
            assert value.equal(skipped.model.state_dict()[key]), key


@given(PERCENT, PERCENT, PERCENT, PERCENT, st.none() | PERCENT, st.floats(0, 30))
def test_returned_and_deep_by_their_definition(before, after, early, late, target, chance):
    found = Relearning(100, 0.05, before, after, early, late, 50.0, chance, target)
    start = before if target is None or target < before else target
    expected = start + late - early
    if expected < 0:  # as low as a confidence can fall
        expected = 0.0
    assert found.returned == pytest.approx(after - expected)
    assert found.deep == (found.returned <= CLOSE or found.returned <= chance)


def test_where_all_is_gone_a_fall_of_unseen_samples_is_no_return():
    """A class of which nothing is left cannot fall with the others."""
    assert Relearning(100, 0.05, 0.1, 0.4, 94.0, 80.0, 0.0, 1.0, target=0.0).deep
    assert not Relearning(100, 0.05, 0.1, 20.0, 94.0, 80.0, 0.0, 1.0, target=0.0).deep
