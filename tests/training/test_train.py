import copy

import plain_net
import pytest
import torch
from conftest import SMALL
from torch import nn

from qunlearn.data import Loader, Split
from qunlearn.errors import Failure, UserError
from qunlearn.models import ModelSpec
from qunlearn.quant import QuantSpec, calibrate, known_quantizers, quantize
from qunlearn.runs.config import TrainConfig
from qunlearn.runs.evaluate import evaluate, evaluate_run
from qunlearn.runs.train import train_run
from qunlearn.store.run import Run
from qunlearn.store.weights import read_tensors
from qunlearn.training import inference
from qunlearn.training.inference import predict
from qunlearn.training.objective import fastest_layout
from qunlearn.training.train import train


def small_model(spec: QuantSpec, seed: int = 0) -> nn.Module:
    return quantize(ModelSpec("resnet18", 10, 1, 8, 0.125).build(seed), spec)


@pytest.mark.parametrize("quantizer", known_quantizers())
def test_every_quantizer_learns_the_digits(digits, quantizer):
    model = quantize(ModelSpec("cnn", 10, 1, 8, 0.5).build(), QuantSpec(quantizer=quantizer))
    train(model, digits, epochs=15, batch_size=30, lr=0.1, warmup=1)
    parts = evaluate(model, digits).parts
    assert min(parts[part].accuracy for part in ("train", "test")) > 80  # chance is 10


def test_one_seed_and_one_thread_count_give_the_same_weights_bit_for_bit(tmp_path):
    for name in "ab":
        train_run(TrainConfig.parse(SMALL), tmp_path / name)
    first, second = (read_tensors(tmp_path / name / "model.safetensors") for name in "ab")
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_another_seed_gives_other_weights_on_the_same_split(tmp_path, run_folder):
    other = train_run(TrainConfig.parse({**SMALL, "seed": 1}), tmp_path / "other")
    assert other.split == Run.open(run_folder).split
    first, second = (read_tensors(r / "model.safetensors") for r in (run_folder, other.path))
    assert not torch.equal(first["14.weight"], second["14.weight"])


def test_a_step_is_plain_sgd_on_the_mean_cross_entropy(digits):
    """The loop against a hand-written one in full precision."""
    model = small_model(QuantSpec(quantizer="none"))
    twin = copy.deepcopy(model).train()
    train(model, digits, epochs=1, batch_size=90, lr=0.05, momentum=0.9, weight_decay=5e-4)

    optimizer = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    for step, batch in enumerate(Loader(digits.data, digits.train, 90, seed=0).epoch(0)):
        optimizer.param_groups[0]["lr"] = [0.05, 0.025][step]
        optimizer.zero_grad()
        nn.functional.cross_entropy(twin(batch.images), batch.labels).backward()
        optimizer.step()
    for (name, a), b in zip(model.state_dict().items(), twin.state_dict().values(), strict=True):
        assert torch.allclose(a, b, atol=1e-5), name


def test_nothing_but_the_part_asked_for_is_trained_on(digits):
    split = digits.forget_random(0.2)
    poisoned = copy.copy(split)
    images = split.data.images.float()
    outside = torch.ones(len(images), dtype=torch.bool)
    outside[split.retain] = False
    images[outside] = torch.nan
    object.__setattr__(
        poisoned, "data", type(split.data)(**{**vars_of(split.data), "images": images})
    )
    model = small_model(QuantSpec())
    train(model, poisoned, part="retain", epochs=1, batch_size=40, lr=0.01)
    assert all(torch.isfinite(p).all() for p in model.parameters())
    with pytest.raises((Failure, UserError)):
        train(small_model(QuantSpec(quantizer="none")), poisoned, epochs=1, batch_size=40, lr=0.01)


def vars_of(data):
    return {
        f: getattr(data, f) for f in data.__dataclass_fields__ if data.__dataclass_fields__[f].init
    }


def test_prediction_moves_nothing_and_keeps_the_mode(digits):
    model = small_model(QuantSpec()).train()
    with pytest.raises(UserError, match="not initialised"):
        predict(model, digits.data, digits.train)
    calibrate(model, digits.data.normalise(digits.data.images[:20]))
    before = copy.deepcopy(model.state_dict())
    model.bn1.eval()
    predict(model, digits.data, digits.test)
    assert model.training
    assert not model.bn1.training
    assert all(
        torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True)
    )


def test_predictions_do_not_depend_on_the_batch_size(digits):
    model = small_model(QuantSpec(quantizer="none")).eval()
    whole = predict(model, digits.data, digits.test)
    assert torch.allclose(whole, predict(model, digits.data, digits.test, batch_size=7), atol=1e-5)


def test_predictions_are_those_of_the_plain_network(digits):
    model = small_model(QuantSpec(quantizer="none"))
    train(model, digits, epochs=1, batch_size=50)
    index = digits.test[:150]
    with torch.no_grad():
        plain = model(digits.data.normalise(digits.data.images[index]))
    torch.testing.assert_close(predict(model, digits.data, index), plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("quantizer", ["lsq+", "lsq", "pact", "dsq"])
def test_predictions_are_the_same_with_and_without_a_compiler(digits, monkeypatch, quantizer):
    model = small_model(QuantSpec(quantizer=quantizer))
    calibrate(model, digits.data.normalise(digits.data.images[:50]))
    before = {name: p.stride() for name, p in model.named_parameters()}
    found = predict(model, digits.data, digits.test)
    monkeypatch.setattr(inference, "why_not", lambda: "no compiler")
    assert torch.equal(predict(model, digits.data, digits.test), found)
    assert {name: p.stride() for name, p in model.named_parameters()} == before


def test_predictions_follow_the_weights(digits):
    model = small_model(QuantSpec())
    calibrate(model, digits.data.normalise(digits.data.images[:50]))
    before = predict(model, digits.data, digits.test)
    with torch.no_grad():
        model.conv1.weight.mul_(-1)
    assert not torch.equal(predict(model, digits.data, digits.test), before)


def test_a_run_folder_holds_everything(run_folder):
    run = Run.open(run_folder)
    assert {p.name for p in run_folder.iterdir()} == {
        "config.toml",
        "split.json",
        "split.key",
        "model.safetensors",
        "history.jsonl",
        "metrics.json",
        "predictions.safetensors",
        "checksums.txt",
        "run.json",
    }
    assert TrainConfig.parse(run.config) == TrainConfig.parse(SMALL)
    assert [row.epoch for row in run.history] == [1, 2]
    assert run.info.machine.threads == 1
    assert evaluate_run(run_folder).to_json() == run.metrics


def test_a_loss_that_explodes_is_said_and_leaves_no_loadable_run(tmp_path):
    config = TrainConfig.parse({**SMALL, "lr": 1e30, "quantizer": "none"})
    with pytest.raises(Failure, match=r"epoch \d.*learning rate"):
        train_run(config, tmp_path / "a")
    with pytest.raises(UserError, match="not finished"):
        Run.open(tmp_path / "a")


@pytest.mark.usefixtures("quick_children")
@pytest.mark.parametrize("other", [{"quantizer": "none"}, {"quantizer": "lsq+", "lr": 1e-9}])
def test_two_processes_do_what_one_does(tmp_path, other):
    """On a network without BatchNorm; in few bits only up to the first change of a code."""
    settings = {**SMALL, "epochs": 1, "model": "plain_net:make", **other}
    one = train_run(TrainConfig.parse(settings), tmp_path / "one")
    two = train_run(TrainConfig.parse({**settings, "devices": 2}), tmp_path / "two")
    a, b = read_tensors(one.model_path), read_tensors(two.model_path)
    for name in a:
        assert torch.allclose(a[name].float(), b[name].float(), rtol=1e-4, atol=1e-6), name


def test_a_split_without_a_test_part_can_be_trained_on(digits):
    data = digits.data.take((~digits.data.is_test).nonzero().flatten())
    split = Split.make(data)
    model = train(small_model(QuantSpec()), split, epochs=1, batch_size=90)
    assert set(evaluate(model, split).parts) == {"train", "held_out"}


def test_training_starts_from_the_full_precision_twin(tmp_path):
    twin = train_run(TrainConfig.parse({**SMALL, "quantizer": "none"}), tmp_path / "twin")
    settings = {**SMALL, "start_from": twin.path, "lr": 1e-9, "epochs": 1}
    run = train_run(TrainConfig.parse(settings), tmp_path / "run")
    start, end = read_tensors(twin.model_path), read_tensors(run.model_path)
    assert torch.allclose(start["0.weight"], end["0.weight"], atol=1e-6)
    assert "0.weight_quantizer.scale" in end

    again = train_run(TrainConfig.parse({**settings, "start_from": run.path}), tmp_path / "again")
    scale = "3.activation_quantizer.scale"
    assert torch.allclose(end[scale], read_tensors(again.model_path)[scale], atol=1e-6)


def test_a_run_on_another_split_is_no_start(tmp_path, run_folder):
    settings = {**SMALL, "start_from": run_folder, "split_seed": 1}
    with pytest.raises(UserError, match="another split"):
        train_run(TrainConfig.parse(settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_one_seed_decides_about_dropout_too(digits):
    def trained() -> torch.Tensor:
        torch.manual_seed(0)
        model = plain_net.with_dropout(10)
        torch.seed()  # whatever the state was
        return train(model, digits, epochs=1, batch_size=60)[1].weight

    assert torch.equal(trained(), trained())


def test_training_leaves_the_global_random_state_alone(digits):
    torch.manual_seed(5)
    expected = torch.rand(3)
    model = plain_net.make(10)
    torch.manual_seed(5)
    train(model, digits, epochs=1, batch_size=90)
    assert torch.equal(torch.rand(3), expected)


def test_the_narrowest_network_is_laid_out_safely():
    """Channels last corrupts memory there (torch 2.13, on processors)."""
    for width, layout in ((0.01, torch.contiguous_format), (0.125, torch.channels_last)):
        model = ModelSpec("resnet18", 10, 1, 8, width).build()
        assert fastest_layout(model) is layout


def test_only_a_part_that_exists_is_trained_on(digits):
    with pytest.raises(UserError, match="Unknown part to train on 'tset'"):
        train(plain_net.make(10), digits, part="tset", epochs=1)
