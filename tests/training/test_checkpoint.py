import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from qunlearn.data import Split
from qunlearn.errors import UserError
from qunlearn.models import ModelSpec
from qunlearn.quant import QuantSpec, known_quantizers, quantize
from qunlearn.runs.model_file import load, save
from qunlearn.runs.train import header_of
from qunlearn.store.info import RunInfo
from qunlearn.store.run import Run
from qunlearn.training.inference import predict
from qunlearn.training.train import train


@pytest.fixture
def copied(run_folder, tmp_path):
    return shutil.copytree(run_folder, tmp_path / "run")


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("quantizer", known_quantizers())
def test_a_loaded_model_gives_identical_outputs_bit_for_bit(
    digits: Split, tmp_path, quantizer, per_channel
):
    spec = ModelSpec("mobilenetv2", 10, 1, 8, 0.25)
    quant = QuantSpec(quantizer=quantizer, per_channel=per_channel)
    model = quantize(spec.build(), quant)
    train(model, digits, epochs=1, batch_size=60, lr=0.05)
    images = digits.data.normalise(digits.data.images[:50])
    with torch.no_grad():
        expected = model.eval()(images)
    scored = predict(model, digits.data, digits.test)

    run = Run.create(tmp_path / "run")
    save(run, model, header_of(spec, quant, digits))
    run.write_config({})
    run.write_split(digits.to_json())
    run.write_metrics({})
    run.finish(RunInfo())
    with torch.no_grad():
        assert torch.equal(load(run.path)(images), expected)
    assert torch.equal(predict(load(run.path), digits.data, digits.test), scored)


def test_a_corrupt_model_is_refused(copied):
    path = copied / "model.safetensors"
    whole = path.read_bytes()
    for damaged in (b"", whole[:100], whole[:-1], b"\xff" * 8 + whole[8:], b"not safetensors"):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"model\.safetensors.*not an intact safetensors"):
            load(copied)


def test_a_foreign_model_is_refused_with_the_way_to_adopt_it(copied):
    save_file({"x": torch.zeros(3)}, copied / "model.safetensors")
    with pytest.raises(UserError, match="qunlearn adopt"):
        load(copied)


def change_header(folder, change):
    path = folder / "model.safetensors"
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    header = json.loads(metadata["qunlearn"])
    change(header)
    save_file(load_file(path), path, {**metadata, "qunlearn": json.dumps(header)})
    Run(folder).finish(RunInfo())  # with a checksum that fits


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda h: h.update(format=99), "format 99"),
        (lambda h: h.pop("model"), "header.*damaged"),
        (lambda h: h.update(classes=3), "header.*damaged"),
        (lambda h: h["quant"].update(bitz=3), "bitz"),
        (lambda h: h["quant"].update(weights=1), "2 to 8"),
        (lambda h: h["model"].update(classes=7), r"'14.bias' is \[10\], not \[7\]"),
        (lambda h: h["model"].update(name="resnet81"), "did you mean 'resnet18'"),
        (lambda h: h["quant"].update(quantizer="none"), "which the model does not"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(copied, change, says):
    change_header(copied, change)
    with pytest.raises(UserError, match=says):
        load(copied)


def test_a_file_never_decides_which_code_is_run(copied, monkeypatch):
    called = []
    monkeypatch.setattr("plain_net.make", lambda **kwargs: called.append(1))
    change_header(copied, lambda h: h["model"].update(name="plain_net:make"))
    with pytest.raises(UserError, match="--model plain_net:make"):
        load(copied)
    assert not called


def test_another_manifest_than_the_models_own_is_noticed(copied):
    manifest = copied / "split.json"
    manifest.write_text(
        manifest.read_text().replace('"seed":0', '"seed":1').replace('"seed": 0', '"seed": 1')
    )
    with pytest.raises(UserError, match=r"split\.json.*has changed"):
        load(copied)


def test_weights_with_nan_are_refused(copied):
    path = copied / "model.safetensors"
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    tensors["14.bias"][0] = torch.nan
    save_file(tensors, path, metadata)
    Run(copied).finish(RunInfo())  # with a checksum that fits
    with pytest.raises(UserError, match=r"14\.bias.*NaN"):
        load(copied)
