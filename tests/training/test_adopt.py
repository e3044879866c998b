import copy
import json

import pytest
import torch
from safetensors.torch import save_file

from qunlearn.data import Split
from qunlearn.errors import UserError
from qunlearn.models import ModelSpec
from qunlearn.quant import QuantSpec, quantize
from qunlearn.training.adopt import adopt_run
from qunlearn.training.checkpoint import load
from qunlearn.training.config import AdoptConfig
from qunlearn.training.evaluate import evaluate_run
from qunlearn.training.train import train


@pytest.fixture(scope="module")
def elsewhere(digits: Split):
    """A full-precision network that memorised the training part, made without a run."""
    model = ModelSpec("resnet18", 10, 1, 8, 0.125).build()
    train(model, digits, epochs=30, batch_size=30, lr=0.03, augment=False)
    return model.eval()


@pytest.fixture
def told(digits, elsewhere, tmp_path):
    """What a user would write down: the weights, and the ids of both parts."""
    save_file(elsewhere.state_dict(), tmp_path / "w.safetensors")
    for name in ("train", "held_out"):
        ids = [digits.data.ids[i] for i in getattr(digits, name).tolist()]
        (tmp_path / f"{name}.csv").write_text("id\n" + "\n".join(ids) + "\n")
    return {
        "dataset": "digits",
        "width": 0.125,
        "weights": tmp_path / "w.safetensors",
        "trained_on": tmp_path / "train.csv",
        "held_out": tmp_path / "held_out.csv",
        "threads": 1,
    }


def test_a_full_precision_model_is_adopted_as_it_is(told, elsewhere, digits, tmp_path):
    more = [digits.data.ids[i] for i in digits.test[:100].tolist()]
    told["held_out"].write_text(told["held_out"].read_text() + "\n".join(more))
    run = adopt_run(AdoptConfig.parse(told), tmp_path / "run")
    state = load(run.path).state_dict()
    assert all(torch.equal(state[k], v) for k, v in elsewhere.state_dict().items())
    assert run.metrics["parts"]["train"]["samples"] == 180
    assert run.metrics["parts"]["train"]["accuracy"] > run.metrics["parts"]["test"]["accuracy"]
    assert "looks unseen" in run.info["held_out_check"]
    assert evaluate_run(run.path) == run.metrics


def test_a_model_is_quantized_and_fine_tuned(told, tmp_path):
    settings = {**told, "weight_bits": 4, "act_bits": 4, "epochs": 2, "batch_size": 30}
    run = adopt_run(AdoptConfig.parse(settings), tmp_path / "run")
    model = load(run.path)
    assert model.blocks[0].conv1.weight_quantizer.bits == 4
    assert len(run.history) == 2
    assert run.metrics["parts"]["train"]["accuracy"] > 60


def test_a_model_can_be_quantized_without_training(told, elsewhere, tmp_path):
    settings = {**told, "weight_bits": 8, "act_bits": 8}
    run = adopt_run(AdoptConfig.parse(settings), tmp_path / "run")
    assert torch.equal(load(run.path).fc.weight, elsewhere.fc.weight)
    assert run.metrics["parts"]["train"]["accuracy"] > 90


def test_a_model_that_is_quantized_already_keeps_its_scales(told, elsewhere, digits, tmp_path):
    model = quantize(copy.deepcopy(elsewhere), QuantSpec())
    train(model, digits, epochs=1, batch_size=60, lr=0.01)
    save_file(model.state_dict(), told["weights"])
    with pytest.raises(UserError, match="are quantized; say how"):
        adopt_run(AdoptConfig.parse(told), tmp_path / "no")
    run = adopt_run(AdoptConfig.parse({**told, "weight_bits": 4, "act_bits": 4}), tmp_path / "run")
    state = load(run.path).state_dict()
    assert all(torch.equal(state[k], v) for k, v in model.state_dict().items())


@pytest.mark.parametrize("bits", [32, 4, 2])
def test_held_out_data_that_was_trained_on_is_found_out(told, digits, tmp_path, bits):
    told = {**told, "weight_bits": bits, "act_bits": bits}
    ids = [digits.data.ids[i] for i in digits.train.tolist()]
    told["trained_on"].write_text("\n".join(ids[::2]))
    told["held_out"].write_text("\n".join(ids[1::2]))
    with pytest.raises(UserError, match="looks trained on"):
        adopt_run(AdoptConfig.parse(told), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_weights_of_another_model_are_refused_before_anything_is_written(told, tmp_path):
    with pytest.raises(UserError, match="do not fit the model"):
        adopt_run(AdoptConfig.parse({**told, "model": "mobilenetv2"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_users_own_factory_is_used_and_must_be_said_again(told, digits, tmp_path):
    import plain_net

    save_file(plain_net.make(10).state_dict(), told["weights"])
    run = adopt_run(AdoptConfig.parse({**told, "model": "plain_net:make"}), tmp_path / "run")
    with pytest.raises(UserError, match="--model plain_net:make"):
        evaluate_run(run.path)
    assert evaluate_run(run.path, factory="plain_net:make") == run.metrics


def test_the_normalisation_it_was_trained_with_is_kept(told, tmp_path):
    settings = {**told, "mean": "0.1", "std": "0.7"}
    run = adopt_run(AdoptConfig.parse(settings), tmp_path / "run")
    assert evaluate_run(run.path) == run.metrics
    assert json.loads(run.split)["normalisation"]["mean"] == [0.1]
    with pytest.raises(UserError, match="2 numbers for 1 channels"):
        adopt_run(AdoptConfig.parse({**told, "mean": "0.1,0.2"}), tmp_path / "no")


@pytest.mark.parametrize("wrong", [{"std": "nan"}, {"std": "0"}, {"mean": "inf"}])
def test_an_impossible_normalisation_is_refused(told, tmp_path, wrong):
    with pytest.raises(UserError, match="is not possible"):
        adopt_run(AdoptConfig.parse({**told, **wrong}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_fine_tuning_with_two_processes(told, tmp_path):
    settings = {
        **told,
        "weight_bits": 4,
        "act_bits": 4,
        "epochs": 1,
        "batch_size": 60,
        "devices": 2,
    }
    assert len(adopt_run(AdoptConfig.parse(settings), tmp_path / "run").history) == 1
