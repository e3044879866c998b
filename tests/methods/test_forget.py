"""Forgetting as a whole: all methods on digits, requests one after another."""

import copy
import dataclasses
import shutil
from pathlib import Path

import plain_net
import pytest
import torch
from conftest import SMALL, made_once
from methods.conftest import fresh

from qunlearn.data import Split
from qunlearn.errors import Failure, UserError
from qunlearn.methods import all_methods, forget
from qunlearn.methods.base import methods
from qunlearn.quant import QuantSpec, known_quantizers, quantize
from qunlearn.runs.adopt import adopt_run
from qunlearn.runs.config import AdoptConfig, TrainConfig
from qunlearn.runs.data import split_of
from qunlearn.runs.evaluate import evaluate, evaluate_run
from qunlearn.runs.forget import forget_run
from qunlearn.runs.model_file import load
from qunlearn.runs.request import ForgetConfig
from qunlearn.runs.train import train_run
from qunlearn.store.run import Run
from qunlearn.store.start import AnotherRun
from qunlearn.store.weights import read_tensors
from qunlearn.training import checkpoint
from qunlearn.training.train import train

NAMES = [method.name for method in all_methods()]


def fast(name):
    return {"samples": 8} if name == "iu" else {"epochs": 2, "batch_size": 60}


def accuracies(model, split):
    return {part: m.accuracy for part, m in evaluate(model, split).parts.items()}


@pytest.mark.parametrize("name", NAMES)
def test_every_method_changes_a_copy_and_says_how_it_went(name, trained, asked):
    before = copy.deepcopy(trained.state_dict())
    result = forget(trained, asked, name, fresh=fresh, **fast(name))
    assert all(torch.equal(value, before[k]) for k, value in trained.state_dict().items())
    after = result.model.state_dict()
    assert any(not torch.equal(after[k], before[k]) for k in before)
    assert not result.model.training
    assert result.seconds > 0
    rounds = 1 if name in ("iu", "calibrated") else 2  # two epochs; of six steps, one round
    assert [row.epoch for row in result.history] == list(range(1, rounds + 1))
    for row in result.history:
        assert {"forget_accuracy", "retain_accuracy"} <= row.scalars.keys()
        assert row.seconds > 0
        assert name == "iu" or ("loss" in row.scalars and row.lr is not None)
    # What is measured on the way is not part of the time that forgetting takes.
    assert result.seconds >= result.history[-1].elapsed > 0
    assert set(accuracies(result.model, asked)) == {"retain", "forget", "held_out", "test"}


def test_calibrated_forgets_a_class_and_keeps_the_others(trained, digits):
    split = digits.forget_class(3)
    before = accuracies(trained, split)
    after = accuracies(
        forget(trained, split, "calibrated", epochs=10, batch_size=40, lr=0.05).model, split
    )
    assert before["forget"] > 80
    assert after["forget"] < before["forget"] / 2
    assert after["retain"] > 80


@pytest.mark.parametrize("quantizer", known_quantizers())
def test_any_quantizer_and_networks_of_others(quantizer, asked):
    model = quantize(plain_net.make(10), QuantSpec(quantizer=quantizer))
    train(model, asked, epochs=2, batch_size=60, lr=0.05)
    for name in ("calibrated", "iu", "salun"):
        result = forget(model, asked, name, **fast(name))
        assert all(torch.isfinite(v).all() for v in result.model.state_dict().values())


def test_a_loss_that_becomes_nan_stops_with_a_sentence(asked):
    with pytest.raises(Failure, match="loss became nan in epoch"):
        forget(plain_net.make(10), asked, "ga", epochs=5, lr=1e30)


# Runs


@pytest.fixture(scope="module")
def first(run_folder, tmp_path_factory) -> Run:
    """A run that has forgotten a tenth."""
    config = {"run": run_folder, "random": 0.1, "method": "calibrated", "epochs": 1, "threads": 1}
    asked = ForgetConfig.parse(config)
    base = made_once(tmp_path_factory, "first", lambda base: forget_run(asked, base / "run"))
    return Run.open(base / "run")


def test_a_run_that_has_forgotten_says_so_in_its_manifest(first, run_folder):
    split = split_of(first)
    assert [request.kind for request in split.requests] == ["random"]
    settings = first.config["settings"]
    assert settings["momentum"] == Run.open(run_folder).config["momentum"]
    assert settings["batch_size"] == 64  # that the push was settled on, not the network's 50
    assert first.info.method == "calibrated"
    assert first.info.origin == Run.open(run_folder).info.model_sha256
    names = ("before", "calibration", "chosen", "relearning")
    found = {name: first.metrics[name] for name in names}
    chosen = {name: found["calibration"][name] for name in ("steps", "lr")}
    assert found["chosen"] == chosen
    assert chosen["steps"] == -(-len(split.retain) // 64)  # one epoch
    assert {**evaluate_run(first.path).to_json(), **found} == first.metrics
    assert first.metrics["before"] == evaluate(load(run_folder), split).to_json()
    assert set(first.metrics["parts"]) == {"retain", "forget", "held_out", "test"}
    load(first.path)


def test_a_run_of_an_earlier_version_of_the_method_is_not_gone_on_with(trained, asked, tmp_path):
    def made(revision):
        now = dataclasses.replace(methods["calibrated"], revision=revision)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(methods._entries, "calibrated", now)
            patch.setattr(checkpoint, "EVERY", 0)
            patch.setattr(checkpoint, "SHARE", 1e9)
            return forget(trained, asked, epochs=2, checkpoint=tmp_path / "checkpoint")

    made(8)
    with pytest.raises(UserError, match="does not match this run"):
        made(9)


def test_settings_of_other_methods_are_told_from_unknown_ones(trained, asked):
    with pytest.raises(UserError, match=r"Method 'oeu' has no setting 'unseen'\. Its settings are"):
        forget(trained, asked, "oeu", unseen="test")
    with pytest.raises(UserError, match="'alhpa': did you mean 'alpha'"):
        forget(trained, asked, "oeu", alhpa=1)


def test_requests_come_one_after_another(first, tmp_path):
    config = {"run": first.path, "classes": ["3"], "method": "ft", "epochs": 1, "threads": 1}
    second = forget_run(ForgetConfig.parse(config), tmp_path / "second")
    split = split_of(second)
    assert [request.kind for request in split.requests] == ["random", "class"]
    parts = {"retain", "forget", "forget_1", "held_out", "test", "test_forgotten"}
    assert set(second.metrics["parts"]) == parts
    retained = set(split.retain.tolist())
    assert not retained & set(split_of(first).forget.tolist())
    assert 3 not in split.data.labels[split.retain]


def test_retrain_by_run_is_the_originals_recipe_on_what_is_retained(run_folder, tmp_path):
    config = {"run": run_folder, "random": 0.1, "method": "retrain", "threads": 1}
    run = forget_run(ForgetConfig.parse(config), tmp_path / "retrain")
    wanted = TrainConfig.parse(SMALL)
    for name in ("epochs", "lr", "warmup", "batch_size", "momentum", "weight_decay", "augment"):
        assert run.config["settings"][name] == getattr(wanted, name), name


def test_an_adopted_or_started_run_has_no_recipe_to_follow(run_folder, tmp_path):
    start = TrainConfig.parse({**SMALL, "epochs": 1, "start_from": run_folder})
    started = train_run(start, tmp_path / "started")
    config = {"run": started.path, "random": 0.1, "method": "retrain", "epochs": 1}
    run = forget_run(ForgetConfig.parse(config), tmp_path / "retrain")
    assert run.config["settings"]["lr"] == 0.1
    assert run.config["settings"]["batch_size"] == SMALL["batch_size"]


def test_the_recipe_is_kept_along_a_chain_of_requests(tmp_path):
    settings = {**SMALL, "epochs": 2, "lr": 0.07, "warmup": 0.5, "batch_size": 40, "augment": False}
    run = train_run(TrainConfig.parse(settings), tmp_path / "original")
    for at, method in enumerate(("iu", "ft", "retrain", "ft")):
        config = {"run": run.path, "random": 0.1, "method": method, "threads": 1}
        config["settings"] = {"samples": 4} if method == "iu" else {}
        if method == "ft":
            config["epochs"] = 1
        run = forget_run(ForgetConfig.parse(config), tmp_path / f"{at}")
        used = run.config["settings"]
        if method != "iu":
            assert (used["batch_size"], used["augment"]) == (40, False)
        if method == "retrain":
            assert (used["epochs"], used["lr"], used["warmup"]) == (2, 0.07, 0.5)


@pytest.mark.usefixtures("quick_children")
@pytest.mark.parametrize("method", ["qmul", "salun", "rl", "l1-sparse", "iu"])
def test_other_methods_in_two_processes(method, tmp_path_factory, plain_run):
    config = {"run": plain_run.path, "model": "plain_net:make", "random": 0.2, "method": method}
    config |= {"settings": {"samples": 4}} if method == "iu" else {"epochs": 1}
    folder = tmp_path_factory.mktemp("two")
    one = forget_run(ForgetConfig.parse({**config, "threads": 1}), folder / "one")
    two = forget_run(ForgetConfig.parse({**config, "threads": 1, "devices": 2}), folder / "two")
    a, b = read_tensors(one.model_path), read_tensors(two.model_path)
    for name in a:
        assert torch.allclose(a[name], b[name], rtol=1e-3, atol=1e-5), name


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory) -> Run:
    """A run without BatchNorm, in full precision: two processes can do just what one does."""
    settings = {**SMALL, "epochs": 1, "model": "plain_net:make", "quantizer": "none"}
    config = TrainConfig.parse(settings)
    base = made_once(tmp_path_factory, "plain", lambda base: train_run(config, base / "original"))
    return Run.open(base / "original")


@pytest.mark.usefixtures("quick_children")
@pytest.mark.parametrize("method", ["calibrated", "oeu"])
def test_two_processes_forget_as_one(method, plain_run, tmp_path):
    original = plain_run
    config = {
        "run": original.path,
        "model": "plain_net:make",
        "random": 0.2,
        "method": method,
        "epochs": 1,
        "threads": 1,
    }
    one = forget_run(ForgetConfig.parse(config), tmp_path / "one")
    two = forget_run(ForgetConfig.parse({**config, "devices": 2}), tmp_path / "two")
    a, b = read_tensors(one.model_path), read_tensors(two.model_path)
    before = read_tensors(original.model_path)
    for name in a:
        assert torch.allclose(a[name], b[name], rtol=1e-4, atol=1e-6), name
        assert not torch.equal(a[name], before[name])
    keep = ("loss",) if method == "calibrated" else ("loss", "forget_loss")
    for x, y in zip(one.history, two.history, strict=True):
        found, expected = ([each.scalars[name] for name in keep] for each in (x, y))
        assert found == pytest.approx(expected, rel=1e-4)


def test_erased_samples_cannot_be_forgotten_by(trained, asked):
    left = torch.ones(len(asked.data), dtype=torch.bool)
    left[asked.forget] = False
    split = Split.from_json(asked.to_json(), asked.data.take(left.nonzero().flatten()))
    with pytest.raises(UserError, match="erased"):
        forget(trained, split, "calibrated")


def test_what_is_no_model_split_or_name_is_named(trained, asked):
    for arguments, says in (
        (("x", asked), "str is no Module"),
        ((trained, asked.data), "ImageData is no Split: make one with Split.random"),
        ((trained, asked, None), "NoneType is no str"),
    ):
        with pytest.raises(UserError, match=says):
            forget(*arguments)


def retrain_of(run, **other):
    settings = {"run": run.path, "random": 0.1, "method": "retrain", "threads": 1, **other}
    return ForgetConfig.parse(settings)


@pytest.fixture(scope="module")
def from_twin(tmp_path_factory) -> dict[str, Run]:
    """A full-precision network and its Retrain; and a quantized one that was trained from it."""
    home = made_once(tmp_path_factory, "twin", make_twins)
    folders = ("twin", "retrain", "few bits", "adopted", "own retrain", "other retrain")
    return {name: Run.open(home / name) for name in folders}


def make_twins(home: Path) -> None:
    """Fill a folder with them."""
    full = {**SMALL, "quantizer": "none", "lr": 0.03, "epochs": 6}
    twin = train_run(TrainConfig.parse(full), home / "twin")
    ask = {"run": twin.path, "random": 0.1, "method": "retrain", "threads": 1}
    start = {**SMALL, "epochs": 1, "lr": 0.004, "start_from": twin.path}
    few = train_run(TrainConfig.parse(start), home / "few bits")
    other = train_run(TrainConfig.parse({**full, "seed": 5}), home / "other")
    (home / "unseen.txt").write_text("\n".join(split_of(twin).data.ids[i] for i in range(20)))
    weights = {"weights": twin.model_path, "held_out": home / "unseen.txt"}
    names = ("dataset", "subset", "model", "width", "batch_size", "threads")
    told = {name: SMALL[name] for name in names}
    forget_run(ForgetConfig.parse(ask), home / "retrain")
    adopt_run(AdoptConfig.parse({**told, **weights}), home / "adopted")
    forget_run(retrain_of(few, epochs=1), home / "own retrain")
    forget_run(retrain_of(other, epochs=1), home / "other retrain")


def test_a_network_from_a_twin_is_retrained_from_the_twins_retrain(from_twin, tmp_path):
    start = from_twin["retrain"]
    asked = retrain_of(from_twin["few bits"], start_from=start.path)
    run = forget_run(asked, tmp_path / "retrain")
    used = run.config["settings"]
    assert (used["epochs"], used["lr"]) == (1, 0.004)  # the recipe that the network had
    # The same by hand: the other Retrain's weights, quantized, then trained on what is retained.
    split = split_of(run)
    by_hand = quantize(load(start.path), QuantSpec())
    names = ("epochs", "lr", "batch_size", "momentum", "weight_decay", "augment")
    train(by_hand, split, part="retain", **{name: used[name] for name in names})
    for name, tensor in read_tensors(run.model_path).items():
        assert torch.equal(tensor, by_hand.state_dict()[name]), name


@pytest.mark.parametrize(
    ("run", "other", "says"),
    [
        ("few bits", {"start_from": "own retrain"}, "is the Retrain of another network than"),
        ("few bits", {"start_from": "other retrain"}, "is the Retrain of another network than"),
        ("adopted", {}, "not on record what the network of .* was trained from"),
        ("few bits", {"provenance": {"start": "0" * 64}}, "has been made anew since"),
        ("few bits", {"method": "ft"}, "--start-from goes with retrain, not with 'ft'"),
        ("twin", {}, "was trained from scratch, and so is its Retrain; leave --start-from out"),
        ("few bits", {"start_from": "twin"}, "was not made by Retrain"),
        ("few bits", {"random": 0.2}, "was retrained without other samples than those"),
        ("few bits", {"start_from": "nowhere"}, "nowhere"),
    ],
)
def test_what_a_retrain_cannot_start_from_is_said(from_twin, tmp_path, run, other, says):
    named = other.get("start_from", "retrain")
    path = from_twin[named].path if named in from_twin else tmp_path / named
    asked = retrain_of(from_twin[run], **{**other, "start_from": path})
    with pytest.raises(UserError, match=says):
        forget_run(asked, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_run_that_starts_from_another_is_not_written_into_it(from_twin):
    start = from_twin["retrain"].path
    with pytest.raises(UserError, match=f"is inside the run '{start}'"):
        forget_run(retrain_of(from_twin["few bits"], start_from=start), start / "sub")


def test_a_start_that_was_replaced_is_not_gone_on_with(from_twin, tmp_path):
    start = tmp_path / "start"
    shutil.copytree(from_twin["retrain"].path, start)
    asked = retrain_of(from_twin["few bits"], start_from=start)
    run = forget_run(asked, tmp_path / "retrain")
    (run.path / "run.json").unlink()  # as if it had been interrupted
    shutil.rmtree(start)
    forget_run(retrain_of(from_twin["twin"], epochs=1), start)
    with pytest.raises(AnotherRun):
        forget_run(asked, tmp_path / "retrain", resume=True)


def test_requests_one_after_another_start_from_the_twins_own(from_twin, tmp_path):
    """Whatever method the earlier request was met by, on either side."""
    ends = []
    for name in ("twin", "few bits"):
        asked = {"run": from_twin[name].path, "classes": ["3"], "method": "ga", "epochs": 1}
        first = forget_run(ForgetConfig.parse({**asked, "threads": 1}), tmp_path / name)
        other = {"start_from": ends[0].path} if ends else {}
        ends.append(forget_run(retrain_of(first, **other), tmp_path / f"{name} end"))
    assert ends[1].config["provenance"]["start"] == ends[0].info.model_sha256
    assert ends[1].config["settings"]["lr"] == 0.004


def test_other_bits_are_not_started_from(from_twin, tmp_path):
    other = {**SMALL, "weight_bits": 2, "start_from": from_twin["few bits"].path}
    with pytest.raises(UserError, match="has other bits or another quantizer"):
        train_run(TrainConfig.parse(other), tmp_path / "out")
    assert not (tmp_path / "out").exists()
