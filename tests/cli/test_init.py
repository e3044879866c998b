"""`qunlearn init`: four answers become a settings file that runs."""

import io
import json
import re
import sys
import tomllib

import numpy as np
import pytest
from PIL import Image

from qunlearn.runs.config import AdoptConfig, TrainConfig
from qunlearn.store.run import Run


@pytest.fixture
def images(tmp_path, digits):
    """Somebody's data."""
    data, rows = digits.data, slice(0, 120)
    file = tmp_path / "mine.npz"
    np.savez(
        file,
        x_train=data.images[rows].numpy(),
        y_train=data.labels[rows].numpy(),
        x_test=data.images[-60:].numpy(),
        y_test=data.labels[-60:].numpy(),
    )
    return file


def test_the_file_runs_and_the_commands_it_names_run(qunlearn, images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = qunlearn("init", "a.toml", "--dataset", images, "--model", "cnn", "--json")
    assert code == 0
    train, forget, report = (line.split()[1:] for line in json.loads(out)["commands"])
    assert qunlearn(*train, "--epochs", 1, "--threads", 1)[0] == 0
    run = Run.open(tmp_path / "runs" / "original")
    settings = TrainConfig.parse(run.config)
    assert (settings.weight_bits, settings.act_bits, settings.model) == (4, 4, "cnn")
    ids = run.path / "split.json"
    (tmp_path / "ids.csv").write_text("id\ntrain/3\ntrain/5\n")
    assert ids.is_file()
    code = qunlearn(*forget, "--method", "ft", "--epochs", 1, "--threads", 1, "--accept")[0]
    assert code == 0
    assert qunlearn(*report)[0] == 0


def test_a_trained_network_is_adopted(qunlearn, images, tmp_path, run_folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    weights = run_folder / "model.safetensors"
    words = ("--dataset", images, "--weights", weights, "--bits", 8, "--model", "nets:make")
    assert qunlearn("init", "b.toml", *words)[0] == 0
    text = (tmp_path / "b.toml").read_text()
    settings = AdoptConfig.parse(tomllib.loads(text))
    assert (settings.weights, settings.weight_bits, settings.epochs) == (weights, 8, 5)
    # A file never decides which code runs: the factory is typed, and stands in the command.
    assert "qunlearn adopt --config b.toml --model nets:make --out runs/original" in text
    assert '\n# model = "nets:make"' in text


def test_every_setting_stands_below_its_meaning(qunlearn, images, tmp_path):
    file = tmp_path / "c.toml"
    qunlearn("init", file, "--dataset", images)
    lines = file.read_text().splitlines()
    for name in tomllib.loads(file.read_text()):
        at = next(i for i, line in enumerate(lines) if line.startswith(f"{name} ="))
        assert lines[at - 1] == f"# {TrainConfig.model_fields[name].description}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "The setting 'dataset' is missing; give it with --dataset."),
        (("--dataset", "nowhere/at-all"), "There is no data set at 'nowhere/at-all'"),
        (("--dataset", "gone.npz"), "There is no file 'gone.npz'"),
        (("--dataset", "digits", "--model", "resnet19"), "Unknown model 'resnet19'"),
        (("--dataset", "digits", "--bits", 1), "bits = '1' is invalid: choose 2 to 8 bits"),
        (("--dataset", "digits", "--weights", "no.safetensors"), "There is no file 'no.safe"),
    ],
)
def test_a_wrong_answer_gets_one_sentence_and_no_file(qunlearn, tmp_path, words, message):
    code, out, err = qunlearn("init", tmp_path / "d.toml", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_pickled_weights_are_refused_with_what_converts_them(qunlearn, tmp_path):
    """`adopt` would refuse them: a settings file that names them could never run."""
    (tmp_path / "w.pt").write_bytes(b"PK\x03\x04")
    code, out, err = qunlearn(
        "init", tmp_path / "p.toml", "--dataset", "digits", "--weights", tmp_path / "w.pt"
    )
    assert (code, out) == (2, "")
    assert "are pickled" in err
    assert "w.safetensors" in err
    assert not (tmp_path / "p.toml").exists()


def test_a_file_that_is_there_is_not_overwritten(qunlearn, tmp_path):
    (tmp_path / "e.toml").write_text("mine")
    code, _, err = qunlearn("init", tmp_path / "e.toml", "--dataset", "digits")
    assert (code, "already; name another" in err) == (2, True)
    assert (tmp_path / "e.toml").read_text() == "mine"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_person_is_asked_what_no_flag_answers(qunlearn, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Terminal("cnn\n\n\n"))
    code, out, _ = qunlearn("init", tmp_path / "f.toml", "--dataset", "digits")
    assert code == 0
    assert out.count("Which network") == out.count("How many bits") == 1
    assert "Where is your data" not in out
    settings = TrainConfig.parse(tomllib.loads((tmp_path / "f.toml").read_text()))
    assert (settings.dataset, settings.model, settings.act_bits) == ("digits", "cnn", 4)


def test_a_wrong_answer_is_asked_for_again(qunlearn, images, tmp_path, monkeypatch):
    answers = ["", "nowhere", images, "resnet19", "cnn", "many", "3", "no.safetensors", ""]
    monkeypatch.setattr(sys, "stdin", Terminal("".join(f"{answer}\n" for answer in answers)))
    code, out, err = qunlearn("init", tmp_path / "g.toml")
    assert code == 0, err
    said = out + err
    for refused in ("Unknown data set 'nowhere'", "Unknown model 'resnet19'", "bits = 'many'"):
        assert said.count(refused) == 1
    settings = TrainConfig.parse(tomllib.loads((tmp_path / "g.toml").read_text()))
    assert (settings.dataset, settings.model, settings.weight_bits) == (str(images), "cnn", 3)


@pytest.mark.parametrize("sides", [(9,), (9, 12)])
def test_images_of_several_sizes_are_resized(qunlearn, tmp_path, monkeypatch, sides):
    monkeypatch.chdir(tmp_path)
    for label in ("cat", "dog"):
        (tmp_path / "pets" / label).mkdir(parents=True)
        for n in range(12):
            side = sides[n % len(sides)]
            image = Image.new("RGB", (side, side), (20 * n, 0, 0))
            image.save(tmp_path / "pets" / label / f"{n}.png")
    assert qunlearn("init", "h.toml", "--dataset", "pets", "--model", "cnn")[0] == 0
    text = (tmp_path / "h.toml").read_text()
    (name,) = re.findall(r"such as (train/\w+/\d+\.png)\.", text)
    assert tomllib.loads(text).get("image_size") == (64 if len(sides) > 1 else None)
    quick = ("--image-size", 8, "--epochs", 1, "--width", 0.25, "--threads", 1)
    asked = quick if len(sides) == 1 else quick[2:]
    code, _, err = qunlearn("train", "--config", "h.toml", *asked, "--out", "original")
    assert code == 0, err
    assert name in json.loads((tmp_path / "original" / "split.json").read_text())["parts"]["train"]
