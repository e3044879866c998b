"""A Retrain that was trained elsewhere, as the reference of a run."""

import json
import shutil

import numpy as np
import pytest
from conftest import made_once
from safetensors.torch import save_file

from qunlearn.data import load_dataset
from qunlearn.errors import UserError
from qunlearn.models import ModelSpec
from qunlearn.quant import QuantSpec, quantize
from qunlearn.report import report_run
from qunlearn.report.words import declared_words
from qunlearn.runs.adopt import adopt_run
from qunlearn.runs.check import check_run
from qunlearn.runs.config import AdoptConfig, TrainConfig
from qunlearn.runs.data import split_of
from qunlearn.runs.evaluate import evaluate, evaluate_run
from qunlearn.runs.forget import forget_run
from qunlearn.runs.metrics import Declared
from qunlearn.runs.model_file import load
from qunlearn.runs.request import ForgetConfig
from qunlearn.runs.train import train_run
from qunlearn.store.run import Run
from qunlearn.store.typed import typed
from qunlearn.training.train import train

MEMORISES = {"epochs": 60, "batch_size": 30, "lr": 0.03, "augment": False}
OWN = "plain_net:make"
WORDS = "was declared, not made here"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A network, what it forgot, and its owner's Retrains in few bits and in full precision."""
    return made_once(tmp_path_factory, "declared", make)


def make(base):
    """Fill a folder with them."""
    # Labels by chance, so that whatever is right was memorised.
    rng = np.random.default_rng(0)
    images = load_dataset("digits").images[:400].numpy()
    labels = rng.integers(10, size=400)
    arrays = {"x_train": images[:200], "y_train": labels[:200]}
    np.savez(base / "d.npz", **arrays, x_test=images[200:], y_test=labels[200:])
    known = {
        "dataset": str(base / "d.npz"),
        "model": OWN,
        "weight_bits": 8,
        "act_bits": 8,
        "threads": 1,
    }
    train_run(TrainConfig.parse({**MEMORISES, **known}), base / "original")
    asked = {"run": base / "original", "model": OWN, "random": 0.2, "method": "ga", "epochs": 1}
    asked |= {"threads": 1}
    split = split_of(forget_run(ForgetConfig.parse(asked), base / "forgotten"))
    for name, spec in (("retrain", QuantSpec(8, 8)), ("full", QuantSpec(quantizer="none"))):
        model = quantize(ModelSpec(OWN, 10, 1, 8).build(7), spec)
        train(model, split, part="retain", **MEMORISES)
        save_file(model.state_dict(), base / f"{name}.safetensors")
    ids = [split.data.ids[row] for row in split.retain.tolist()]
    (base / "retained.txt").write_text("\n".join(ids))
    said = {"weights": base / "retrain.safetensors", "retrain_of": base / "forgotten"}
    adopt_run(AdoptConfig.parse({**said, "model": OWN, "threads": 1}), base / "declared")


def declare(made, out, **other):
    said = {"weights": made / "retrain.safetensors", "retrain_of": made / "forgotten"}
    return adopt_run(AdoptConfig.parse({**said, "model": OWN, "threads": 1, **other}), out)


def test_it_is_a_reference_and_every_command_says_that_it_was_declared(made, qunlearn, tmp_path):
    shutil.copytree(made / "forgotten", tmp_path / "forgotten")
    run = tmp_path / "forgotten"
    reference = ("--reference", made / "declared", "--model", OWN)
    split = split_of(Run.open(run))
    expected = evaluate(load(run, OWN), split, load(made / "declared", OWN))
    code, out, _ = qunlearn("evaluate", run, *reference, "--json")
    metrics = json.loads(out)["metrics"]
    assert (code, metrics["AG"]) == (0, pytest.approx(expected.AG))
    assert WORDS in declared_words(typed(Declared, metrics["declared"], run))
    assert WORDS in qunlearn("evaluate", run, *reference)[1]
    code, out, _ = qunlearn("audit", "bits", run, *reference, "--bits", "6")
    assert (code, WORDS in out) == (0, True)
    page = report_run(run, reference=made / "declared").read_text()
    assert page.count(WORDS) == 3  # how far to trust it, beside the figures, and in the audit
    assert "Retrain, declared" in page
    assert "how long it took" not in page
    assert not (run / "figures" / "runtime.svg").exists()


def test_what_was_declared_is_on_record(made):
    run = Run.open(made / "declared")
    assert run.config["retrain_of"] == str(made / "forgotten")
    assert run.split == Run.open(made / "forgotten").split
    assert run.info.declared.verdicts["forget"] == "unseen"
    assert run.config["weight_bits"] == 8
    assert not check_run(made / "declared")
    # An own Retrain made here is not called declared.
    assert evaluate_run(made / "forgotten", factory=OWN).declared is None


def test_a_list_of_what_it_was_trained_on_must_agree(made, tmp_path):
    run = declare(made, tmp_path / "right", trained_on=made / "retained.txt")
    assert run.info.method == "retrain"
    retained = (made / "retained.txt").read_text()
    forgotten = json.loads(Run.open(made / "forgotten").split)["requests"][0]["ids"]
    (tmp_path / "more.txt").write_text(f"{retained}\n{forgotten[0]}\n{forgotten[1]}")
    with pytest.raises(UserError, match=f"'{forgotten[0]}' is in --trained-on, as are 1 more"):
        declare(made, tmp_path / "no", trained_on=tmp_path / "more.txt")
    (tmp_path / "fewer.txt").write_text("\n".join(retained.splitlines()[1:]))
    with pytest.raises(UserError, match="names 145 samples, and not the 146 that"):
        declare(made, tmp_path / "no", trained_on=tmp_path / "fewer.txt")
    assert not (tmp_path / "no").exists()


def test_a_network_that_was_trained_on_what_is_forgotten_is_no_retrain(made, tmp_path):
    save_file(load(made / "original", OWN).state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(UserError, match="samples that are forgotten look trained on"):
        declare(made, tmp_path / "no", weights=tmp_path / "w.safetensors")
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"retrain_of": "original"}, "has forgotten nothing"),
        ({"epochs": 1}, "--epochs 1 does not go with --retrain-of"),
        ({"held_out": "test:0.2"}, "--held-out test:0.2 does not go with --retrain-of"),
        ({"mean": "0.1"}, "--mean is not that of the run"),
        ({"model": "plain_net:with_dropout"}, "do not fit the model"),
        ({"model": None}, "--model plain_net:make"),
    ],
)
def test_what_cannot_be_declared_is_said(made, tmp_path, other, says):
    if "retrain_of" in other:
        other = {"retrain_of": made / other["retrain_of"]}
    said = {"weights": made / "retrain.safetensors", "retrain_of": made / "forgotten"}
    said |= {"model": OWN, "threads": 1, **other}
    config = {name: value for name, value in said.items() if value is not None}
    with pytest.raises(UserError, match=says):
        adopt_run(AdoptConfig.parse(config), tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_a_retrain_in_full_precision_is_a_reference_but_not_for_other_bits(
    made, qunlearn, tmp_path
):
    full = declare(made, tmp_path / "full", weights=made / "full.safetensors")
    own = ("--model", OWN)
    assert not full.info.declared.same_bits
    code, out, _ = qunlearn("evaluate", made / "forgotten", "--reference", full.path, *own)
    assert (code, "Its bits are not the run's." in out) == (0, True)
    code, _, err = qunlearn("audit", "bits", made / "forgotten", "--reference", full.path, *own)
    assert (code, "cannot be treated the same" in err) == (2, True)


def test_it_is_no_reference_for_another_request(made, tmp_path):
    asked = {"run": made / "original", "random": 0.1, "method": "ga", "epochs": 1, "model": OWN}
    forget_run(ForgetConfig.parse(asked), tmp_path / "other")
    with pytest.raises(UserError, match="without other samples than those"):
        evaluate_run(tmp_path / "other", reference=made / "declared")


def test_it_can_be_resumed_and_made_again(made, qunlearn, tmp_path):
    shutil.copytree(made / "declared", tmp_path / "a")
    (tmp_path / "a" / "run.json").unlink()  # as if it had been interrupted
    assert qunlearn("adopt", "--resume", "--model", OWN, "--out", tmp_path / "a")[0] == 0
    said = ("--weights", made / "retrain.safetensors", "--retrain-of", made / "forgotten")
    words = ("adopt", *said, "--model", OWN, "--threads", 1, "--out", tmp_path / "b")
    assert "Declared as a Retrain" in qunlearn(*words)[1]
    for name in ("a", "b"):
        for file in ("model.safetensors", "metrics.json", "config.toml"):
            ours = (made / "declared" / file).read_bytes()
            assert (tmp_path / name / file).read_bytes() == ours
