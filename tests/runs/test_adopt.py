import copy
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import plain_net
import pytest
import torch
from conftest import trained_once
from safetensors.torch import save_file
from torch import nn

from qunlearn.data import Split
from qunlearn.data.arrays import as_image_data
from qunlearn.errors import UserError
from qunlearn.models import ModelSpec
from qunlearn.quant import QuantSpec, quantize
from qunlearn.runs.adopt import adopt_run, unwrapped
from qunlearn.runs.config import AdoptConfig
from qunlearn.runs.evaluate import evaluate_run
from qunlearn.runs.mismatch import check_inputs
from qunlearn.runs.model_file import load
from qunlearn.training.inference import predict
from qunlearn.training.train import train


def trained(model: nn.Module, split: Split, epochs: int = 30) -> nn.Module:
    return train(model, split, epochs=epochs, batch_size=30, lr=0.03, augment=False)


@pytest.fixture(scope="module")
def elsewhere(digits: Split, tmp_path_factory):
    """A full-precision network that memorised the training part, made without a run."""

    spec = ModelSpec("resnet18", 10, 1, 8, 0.125)
    return trained_once(
        tmp_path_factory, "elsewhere", spec.build, lambda model: trained(model, digits)
    )


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
    assert run.info.held_out_check.verdict == "unseen"
    assert evaluate_run(run.path).to_json() == run.metrics


def test_lists_may_call_their_column_otherwise(told, tmp_path):
    for name in ("trained_on", "held_out"):
        told[name].write_text(told[name].read_text().replace("id\n", "nr;sample\n1;", 1))
        told[name].write_text(told[name].read_text().replace("\ntrain/", "\n2;train/"))
    with pytest.raises(UserError, match=r"has the columns 'nr', 'sample' but no 'id'; .*--column"):
        adopt_run(AdoptConfig.parse(told), tmp_path / "run")
    run = adopt_run(AdoptConfig.parse({**told, "column": "sample"}), tmp_path / "run")
    assert run.metrics["parts"]["train"]["samples"] == 180


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
    save_file(trained(plain_net.make(10), digits).state_dict(), told["weights"])
    run = adopt_run(AdoptConfig.parse({**told, "model": "plain_net:make"}), tmp_path / "run")
    with pytest.raises(UserError, match="--model plain_net:make"):
        evaluate_run(run.path)
    assert evaluate_run(run.path, factory="plain_net:make").to_json() == run.metrics


def test_the_normalisation_it_was_trained_with_is_kept_and_any_other_refused(
    told, digits, tmp_path
):
    data = replace(digits.data, mean=(0.5,), std=(0.5,))
    model = trained(ModelSpec("resnet18", 10, 1, 8, 0.125).build(), replace(digits, data=data))
    save_file(model.state_dict(), told["weights"])
    for wrong in ({"mean": "0.1", "std": "0.01"}, {"mean": "9", "std": "1"}):
        with pytest.raises(UserError, match=r"--mean 0\.5 --std 0\.5\.$"):
            adopt_run(AdoptConfig.parse({**told, **wrong}), tmp_path / "no")
    assert not (tmp_path / "no").exists()
    run = adopt_run(AdoptConfig.parse({**told, "mean": "0.5", "std": "0.5"}), tmp_path / "run")
    assert evaluate_run(run.path).to_json() == run.metrics
    assert json.loads(run.split)["normalisation"]["mean"] == [0.5]
    with pytest.raises(UserError, match="2 numbers for 1 channels"):
        adopt_run(AdoptConfig.parse({**told, "mean": "0.1,0.2"}), tmp_path / "no")


def test_swapped_lists_are_refused_with_the_remedy(told, digits, tmp_path):
    swapped = {**told, "trained_on": told["held_out"], "held_out": told["trained_on"]}
    with pytest.raises(UserError, match=r"look swapped.*swap --trained-on and --held-out"):
        adopt_run(AdoptConfig.parse(swapped), tmp_path / "run")
    with pytest.raises(UserError, match="look swapped"):  # --trained-on is everything else
        adopt_run(AdoptConfig.parse({**swapped, "trained_on": None}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_network_that_memorised_and_generalises_not_at_all_is_adopted(told, digits, tmp_path):
    """Labels by chance: right on all that it was trained on, and by guessing elsewhere."""
    labels = torch.randint(10, (len(digits.data),), generator=torch.Generator().manual_seed(1))
    images = digits.data.images.numpy()
    split = replace(digits, data=replace(digits.data, labels=labels))
    model = trained(plain_net.make(10), split, epochs=150)
    save_file(model.state_dict(), told["weights"])
    names = ("train", "held_out", "test")
    train, held_out, test = (getattr(split, name).tolist() for name in names)
    known = train + held_out
    arrays = {"x_train": images[known], "y_train": labels.numpy()[known]}
    arrays |= {"x_test": images[test], "y_test": labels.numpy()[test]}
    np.savez(tmp_path / "d.npz", **arrays)
    (tmp_path / "unseen.txt").write_text("\n".join(f"train/{i}" for i in range(180, 200)))
    mean, std = digits.data.mean[0], digits.data.std[0]
    own = {"dataset": str(tmp_path / "d.npz"), "held_out": tmp_path / "unseen.txt"}
    own |= {"model": "plain_net:make"}
    settings = {**told, **own, "trained_on": None, "mean": str(mean), "std": str(std)}
    run = adopt_run(AdoptConfig.parse(settings), tmp_path / "run")
    found = run.metrics["parts"]
    assert found["train"]["accuracy"] > 90
    assert found["test"]["accuracy"] < 20


def test_a_network_that_only_guesses_is_refused_with_what_may_be_wrong(told, digits, tmp_path):
    torch.manual_seed(0)
    save_file(plain_net.make(10).state_dict(), told["weights"])
    with pytest.raises(UserError, match=r"no more than by guessing.*--mean and --std"):
        adopt_run(AdoptConfig.parse({**told, "model": "plain_net:make"}), tmp_path / "run")


def test_another_order_of_classes_is_told(told, elsewhere, tmp_path):
    state = dict(elsewhere.state_dict())
    order = [3, 1, 2, 0, 5, 4, 6, 7, 8, 9]
    state |= {name: state[name][order].clone() for name in ("fc.weight", "fc.bias")}
    save_file(state, told["weights"])
    with pytest.raises(UserError, match=r"output 0 for '3', output 3 for '0', output 4 for '5'"):
        adopt_run(AdoptConfig.parse(told), tmp_path / "run")


def test_reversed_channels_are_told():
    """A network made by hand, which answers with the brightest of red, green and blue."""
    labels = torch.arange(90) % 3
    images = torch.randint(100, (90, 3, 4, 4), dtype=torch.uint8)
    images[torch.arange(90), labels] += 100
    data = as_image_data((images, labels), layout="NCHW")
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3, bias=False))
    model[2].weight = nn.Parameter(torch.eye(3))
    index = torch.arange(90)
    check_inputs(model, data, data, index, predict(model, data, index))
    model[2].weight = nn.Parameter(torch.eye(3).flip(1))
    with pytest.raises(UserError, match=r"100\.0 % with the channels in reverse order; reverse"):
        check_inputs(model, data, data, index, predict(model, data, index))


def test_a_pickled_file_is_refused_with_a_line_that_converts_it(told, elsewhere, tmp_path):
    folder = tmp_path / "it's mine"
    folder.mkdir()
    wrapped = nn.DataParallel(elsewhere).state_dict()
    for name, content in (("a.pt", wrapped), ("b.pth", {"epoch": 3, "state_dict": wrapped})):
        torch.save(content, folder / name)
        with pytest.raises(UserError, match="If you trust it") as refused:
            adopt_run(AdoptConfig.parse({**told, "weights": folder / name}), tmp_path / "no")
        line = str(refused.value).partition("--weights: ")[2]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(line, shell=True, check=True, env={**os.environ, "PATH": path})
        weights = (folder / name).with_suffix(".safetensors")
        run = adopt_run(AdoptConfig.parse({**told, "weights": weights}), tmp_path / name)
        assert torch.equal(load(run.path).fc.weight, elsewhere.fc.weight)
    (folder / "a.pt").rename(folder / "a.safetensors")  # whatever it is called
    with pytest.raises(UserError, match="are pickled"):
        adopt_run(AdoptConfig.parse({**told, "weights": folder / "a.safetensors"}), tmp_path / "no")


def test_what_wraps_a_network_leaves_its_names(elsewhere):
    spec = ModelSpec("resnet18", 10, 1, 8, 0.125)
    plain = elsewhere.state_dict()
    compiled = torch.compile(copy.deepcopy(elsewhere))
    compiled.blocks[0] = torch.compile(compiled.blocks[0])
    for wrapped in (nn.DataParallel(elsewhere), compiled, nn.DataParallel(compiled)):
        assert wrapped.state_dict().keys() != plain.keys()
        assert unwrapped(wrapped.state_dict(), spec).keys() == plain.keys()
    own = {name: torch.zeros(1) for name in ("module.weight", "module.bias")}
    assert unwrapped(own, ModelSpec("plain_net:with_module", 10, 1, 8)).keys() == own.keys()


def test_a_share_of_the_test_part_is_held_out(told, digits, tmp_path):
    drawn = []
    for seed in (0, 0, 1):
        settings = {**told, "held_out": "test:0.2", "split_seed": seed, "subset": 200}
        if seed:  # another subset, too
            settings |= {"subset": None}
        run = adopt_run(AdoptConfig.parse(settings), tmp_path / f"run{len(drawn)}")
        parts = json.loads(run.split)["parts"]
        assert (len(parts["held_out"]), len(parts["test"]), len(parts["train"])) == (90, 360, 180)
        assert all(name.startswith("test/") for name in parts["held_out"])
        assert run.config["held_out"] == "test:0.2"
        drawn.append(set(parts["held_out"]))
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("share", ["test:", "test:2", "test:0", "test:nan", "test:x"])
def test_an_impossible_share_of_the_test_part_is_refused(told, tmp_path, share):
    with pytest.raises(UserError, match=r"as test:0\.2"):
        adopt_run(AdoptConfig.parse({**told, "held_out": share}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("wrong", [{"std": "nan"}, {"std": "0"}, {"mean": "inf"}])
def test_an_impossible_normalisation_is_refused(told, tmp_path, wrong):
    with pytest.raises(UserError, match="is invalid"):
        adopt_run(AdoptConfig.parse({**told, **wrong}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("quick_children")
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
