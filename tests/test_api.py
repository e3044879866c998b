"""The way in from Python, and back to the command line."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from plain_net import make
from torch import nn

import qunlearn as qu
from qunlearn.data import manifest
from qunlearn.data.sources.npz import to_arrays
from qunlearn.runs.provenance import Recipe
from qunlearn.runs.recipe import recipe_of
from qunlearn.store.run import Run

FACTORY = "plain_net:make"
QUICK = {"epochs": 1, "batch_size": 50}


def arrays(size=200):
    digits = qu.load_dataset("digits", subset=size)
    pixels, labels, test = digits.images[:, 0].numpy(), digits.labels.numpy(), digits.is_test
    return (pixels[~test], labels[~test]), (pixels[test], labels[test])


@pytest.fixture(scope="module")
def own():
    """A user's own arrays, with a column, and a split with nothing to forget yet."""
    train, test = arrays()
    users = {"user": np.arange(len(train[0])) // 10}
    return qu.Split.make(qu.Data(train, test, metadata=users, augment={"crop": 1}))


@pytest.fixture(scope="module")
def saved(own, tmp_path_factory):
    """A network of one's own, trained and saved with its data; and what it forgot, beside it."""
    folder = tmp_path_factory.mktemp("python")
    torch.manual_seed(0)
    net = qu.quantize(make(10), qu.QuantSpec(weights=4, activations=4))
    settings = {"epochs": 3, "batch_size": 50, "lr": 0.05}
    qu.train(net, own, **settings, save=folder / "original", factory=FACTORY, data=True)
    result = qu.forget(net, own.forget_where("user == 3"), **QUICK)
    result.save(folder / "forgotten", origin=folder / "original", factory=FACTORY)
    return folder, net, result


def same(first: nn.Module, second: nn.Module, split: qu.Split) -> bool:
    images = split.data.normalise(split.data.images[:50])
    with torch.no_grad():
        return torch.equal(first.eval()(images), second.eval()(images))


def test_every_command_takes_what_was_saved_from_python(saved, qunlearn, tmp_path):
    folder, net, result = saved
    for words in (
        ("check", folder / "original"),
        ("check", folder / "forgotten"),
        ("evaluate", folder / "forgotten", "--model", FACTORY),
        ("describe", folder / "forgotten", "--model", FACTORY),
        ("report", folder / "forgotten"),
        ("export", folder / "forgotten", "--model", FACTORY, "--out", tmp_path / "m.onnx"),
    ):
        code, _, said = qunlearn(*words)
        assert code == 0, (words, said)
    assert "user == 3" not in (folder / "forgotten" / "report.html").read_text()
    assert same(qu.load(folder / "original", FACTORY), net, result.split)
    assert same(qu.load(folder / "forgotten", FACTORY), result.model, result.split)


def test_the_command_line_goes_on_where_python_stopped(saved, qunlearn, tmp_path):
    folder, _, _ = saved
    more = ("--model", FACTORY, "--class", 3, "--method", "ft", "--epochs", 1)
    code, _, said = qunlearn("forget", folder / "forgotten", *more, "--out", tmp_path / "next")
    assert code == 0, said
    after = Run.open(tmp_path / "next")
    assert recipe_of(after) == recipe_of(Run.open(folder / "original"))
    kinds = [r.kind for r in manifest.parse(after.split).requests]
    assert kinds == ["where", "class"]


def test_retrain_follows_the_training_that_was_saved(saved):
    folder, _, _ = saved
    original = Run.open(folder / "original")
    training = {"epochs": 3, "batch_size": 50, "lr": 0.05, "warmup": 0.0, "momentum": 0.9}
    assert recipe_of(original) == Recipe(
        training={**training, "weight_decay": 5e-4, "augment": True},
        from_scratch=True,
        network=original.info.model_sha256,
    )
    assert [row.epoch for row in original.history] == [1, 2, 3]
    assert recipe_of(Run.open(folder / "forgotten")) == recipe_of(original)


def test_the_saved_figures_are_those_of_evaluate(saved):
    folder, net, result = saved
    stored = Run.open(folder / "forgotten").metrics
    measured = qu.evaluate(result.model, result.split)
    for name in ("FA", "RA", "TA", "MIA"):
        assert stored[name] == pytest.approx(measured.figures[name])
        before = qu.evaluate(net, result.split).figures[name]
        assert stored["before"][name] == pytest.approx(before)


def test_a_moved_folder_has_its_data_with_it(saved, qunlearn, tmp_path):
    folder, _, _ = saved
    (folder / "original").rename(tmp_path / "elsewhere")
    try:
        code, _, said = qunlearn("evaluate", tmp_path / "elsewhere", "--model", FACTORY)
        assert code == 0, said
    finally:
        (tmp_path / "elsewhere").rename(folder / "original")


def test_without_factory_and_data_the_remedy_is_named(saved, qunlearn, tmp_path):
    _, _, result = saved
    result.save(tmp_path / "bare")
    code, _, said = qunlearn("evaluate", tmp_path / "bare", "--model", FACTORY)
    assert code == 2
    assert "data=True" in said
    code, _, said = qunlearn("describe", tmp_path / "bare")
    assert code == 2
    assert "--model package.module:function" in said
    assert qunlearn("check", tmp_path / "bare")[0] == 0
    assert same(qu.load(tmp_path / "bare", model=make(10)), result.model, result.split)
    with pytest.raises(qu.UserError, match="do not fit the model"):
        qu.load(tmp_path / "bare", model=nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    with pytest.raises(qu.UserError, match="give one of them"):
        qu.load(tmp_path / "bare", FACTORY, model=make(10))


def test_one_file_of_data_serves_several_runs(saved, own, qunlearn, tmp_path):
    _, net, result = saved
    file = tmp_path / "arrays.npz"
    qu.save(net, own, tmp_path / "one", factory=FACTORY, data=file)
    written = file.read_bytes()
    result.save(tmp_path / "two", factory=FACTORY, data=file)
    assert file.read_bytes() == written
    assert qunlearn("evaluate", tmp_path / "two", "--model", FACTORY)[0] == 0
    other = to_arrays(own.data)
    other["x_train"] = 255 - other["x_train"]
    np.savez(tmp_path / "other.npz", **other)
    with pytest.raises(qu.UserError, match="holds other data"):
        result.save(tmp_path / "three", data=tmp_path / "other.npz")
    with pytest.raises(qu.UserError, match=r"is no .npz file"):
        result.save(tmp_path / "three", data="arrays.csv")
    assert not (tmp_path / "three").exists()


def test_qunlearns_own_networks_and_data_need_nothing_said(qunlearn, tmp_path):
    split = qu.Split.make(qu.load_dataset("digits", subset=200))
    spec = qu.ModelSpec("resnet18", classes=10, channels=1, size=8, width=0.125)
    net = qu.train(qu.quantize(spec.build(), qu.QuantSpec()), split, **QUICK)
    qu.save(net, split, tmp_path / "original")
    result = qu.forget(net, split.forget_random(0.1), "ft", **QUICK)
    result.save(tmp_path / "forgotten", origin=tmp_path / "original")
    assert same(qu.load(tmp_path / "forgotten"), result.model, split)
    for command in ("evaluate", "report"):
        assert qunlearn(command, tmp_path / "forgotten")[0] == 0
    words = ("forget", "--config", tmp_path / "forgotten" / "config.toml")
    assert qunlearn(*words, "--out", tmp_path / "again")[0] == 0
    assert same(qu.load(tmp_path / "again"), result.model, split)
    assert str(result.verdict)


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        ("plain_net:too_few", "builds another network: .*not"),
        ("plain_net", "give 'package.module:name'"),
        ("plain_net:absent", "cannot be found"),
    ],
)
def test_a_factory_of_another_network_is_refused(saved, tmp_path, factory, says):
    _, _, result = saved
    with pytest.raises(qu.UserError, match=says):
        result.save(tmp_path / "new", factory=factory)
    assert not (tmp_path / "new").exists()


def test_wrong_origins_are_refused(saved, own, tmp_path):
    folder, net, result = saved
    with pytest.raises(qu.UserError, match="holds another network"):
        result.save(tmp_path / "new", origin=folder / "forgotten")
    other = qu.forget(net, qu.Split.random(own.data, held_out=0.2), **QUICK)
    with pytest.raises(qu.UserError, match="has another split"):
        other.save(tmp_path / "new", origin=folder / "original")
    assert not (tmp_path / "new").exists()


def test_what_cannot_be_an_original_is_not_saved_as_one(saved, own, tmp_path):
    _, net, result = saved
    with pytest.raises(qu.UserError, match="has a request to forget"):
        qu.save(net, result.split, tmp_path / "new")
    with pytest.raises(qu.UserError, match="is a Retrain"):
        qu.train(net, result.split, part="retain", save=tmp_path / "new")
    with pytest.raises(qu.UserError, match="name a folder with save="):
        qu.train(net, own, data=True)
    part = nn.Sequential(
        nn.Flatten(), qu.quantize(nn.Sequential(nn.Linear(64, 10)), qu.QuantSpec())
    )
    with pytest.raises(qu.UserError, match="Only a part of the network was quantized"):
        qu.save(qu.train(part, own, **QUICK), own, tmp_path / "new")
    with pytest.raises(qu.UserError, match="is not empty"):
        result.save(saved[0] / "original")
    assert not (tmp_path / "new").exists()


def test_a_network_that_was_trained_before_is_not_recorded_as_trained_from_scratch(own, tmp_path):
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 10))
    qu.train(net, own, **QUICK, save=tmp_path / "one")
    qu.train(net, own, **QUICK, save=tmp_path / "two")
    runs = [Run.open(tmp_path / name) for name in ("one", "two")]
    assert [recipe_of(run).from_scratch for run in runs] == [True, False]


def test_the_network_given_to_forget_may_be_changed_after(saved, own):
    _, net, _ = saved
    net = copy.deepcopy(net)
    split = own.forget_class(3)
    result = qu.forget(net, split, **QUICK)
    before = qu.evaluate(net, split).FA
    nn.init.zeros_(net[-1].weight)
    assert before == result.metrics.before.FA


def test_export_compares_on_the_split_that_the_network_was_made_on(saved, tmp_path):
    _, _, result = saved
    exported = qu.export(result.model, tmp_path / "model.onnx", target="qdq")
    assert (exported.target, exported.agreement.samples) == ("compact", 450)
    with pytest.raises(qu.UserError, match="cannot be verified without samples"):
        qu.export(copy.deepcopy(result.model), tmp_path / "other.onnx")
    with pytest.raises(qu.UserError, match="target"):
        qu.export(result.model, tmp_path / "other.onnx", target="qqd")
