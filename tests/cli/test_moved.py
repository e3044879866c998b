"""Data and runs that were moved: `--data` for every source, neighbours found, judged by digest."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from conftest import SMALL, flags
from PIL import Image
from scipy.io import savemat
from sklearn.datasets import load_digits

from qunlearn.runs.data import split_of
from qunlearn.runs.nearby import nearby
from qunlearn.runs.origin import origin_of
from qunlearn.store.run import Run
from qunlearn.training.checkpoint import Checkpointer

GA = ("--random", 0.1, "--method", "ga", "--threads", 1)


def write(kind, place):
    """Some digits as an .npz file, a folder of images or a named set; what --dataset says."""
    found = load_digits()
    images, labels = (found.images * 15).astype(np.uint8)[:160], found.target[:160]
    if kind == "npz":
        np.savez(
            place / "data.npz",
            x_train=images[:100],
            y_train=labels[:100],
            x_test=images[100:],
            y_test=labels[100:],
        )
        return ("--dataset", "data.npz"), place / "data.npz"
    if kind == "folder":
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            folder = place / "data" / ("train" if i < 100 else "test") / f"{label}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(folder / f"{i}.png")
        return ("--dataset", "data"), place / "data"
    (place / "data").mkdir()
    large = np.repeat(np.repeat(images, 4, 1), 4, 2)[..., None].repeat(3, 3).transpose(1, 2, 3, 0)
    for name, part in (("train", slice(0, 100)), ("test", slice(100, 160))):
        content = {"X": large[..., part], "y": (labels[part, None] + 9) % 10 + 1}
        savemat(place / "data" / f"{name}_32x32.mat", content)
    return ("--dataset", "svhn", "--data-dir", "data"), place / "data"


SETTINGS = flags({k: v for k, v in SMALL.items() if k not in ("dataset", "subset")})


@pytest.mark.parametrize("kind", ["npz", "folder", "svhn"])
def test_data_of_every_source_may_be_moved(qunlearn, tmp_path, monkeypatch, kind):
    def ok(*words):
        code, out, err = qunlearn(*words)
        assert code == 0, (words, err)
        return out

    monkeypatch.chdir(tmp_path)
    named, data = write(kind, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpointer, "save", ctrl_c(Checkpointer.save))
        assert qunlearn("train", *named, *SETTINGS, "--out", "o")[0] == 1
    away = tmp_path / "far" / "away"
    away.mkdir(parents=True)
    moved = shutil.move(data, away / f"other{data.suffix}")

    code, _, err = qunlearn("train", "--resume", "--out", "o")
    assert (code, err.count("\n")) == (2, 1)
    assert "--data PATH" in err
    ok("train", "--resume", "--data", moved, "--out", "o")
    ok("evaluate", "o")  # the finished run knows where it was found
    back = shutil.move(moved, away / f"third{data.suffix}")
    code, _, err = qunlearn("evaluate", "o")
    assert (code, err.count("\n")) == (2, 1)
    assert "--data PATH" in err
    ok("evaluate", "o", "--data", back)
    ok("forget", "o", *GA, "--data", back, "--out", "ga")
    if kind != "npz":  # once they have the data, commands do not know which source it is from
        assert split_of(Run.open(tmp_path / "ga")).to_json() == Run(tmp_path / "ga").split
        return
    ok("forget", "o", "--random", 0.1, "--method", "retrain", "--data", back, "--out", "retrain")
    ok("evaluate", "ga", "--reference", "retrain")
    last = shutil.move(back, away / f"fourth{data.suffix}")
    ok("report", "ga", "--data", last)
    ok("audit", "bits", "ga", "--data", last, "--bits", "4")
    ok("export", "ga", "--data", last, "--out", "m.onnx")
    assert split_of(Run.open(tmp_path / "ga"), data=last).to_json() == Run(tmp_path / "ga").split


def test_a_comparison_takes_moved_data(qunlearn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named, data = write("npz", tmp_path)
    assert qunlearn("train", *named, *SETTINGS, "--out", "o")[0] == 0
    moved = shutil.move(data, tmp_path / "elsewhere.npz")
    words = ("--random", 0.1, "--methods", "ga", "--seeds", 1, "--threads", 1, "--out", "table")
    code, _, err = qunlearn("compare", "o", *words, "--data", moved)
    assert code == 0, err


def ctrl_c(keep):
    """The user presses it right after the first checkpoint."""

    def pressed(self, *arguments):
        keep(self, *arguments)
        raise KeyboardInterrupt

    return pressed


def test_other_data_is_refused_with_one_message(qunlearn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named, data = write("npz", tmp_path)
    assert qunlearn("train", *named, *SETTINGS, "--out", "o")[0] == 0
    arrays = dict(np.load(data))
    arrays["x_train"][3] ^= 1
    np.savez("other.npz", **{k: v[:99] if k.endswith("train") else v for k, v in arrays.items()})
    before = sorted(tmp_path.rglob("*"))
    for words in (
        ("evaluate", "o"),
        ("forget", "o", *GA, "--out", "new"),
        ("compare", "o", "--random", 0.1, "--methods", "ga", "--out", "new"),
        ("train", "--resume", "--out", "o"),
    ):
        code, _, err = qunlearn(*words, "--data", "other.npz")
        assert (code, err.count("\n")) == (2, 1), words
        assert "The data 'other' does not match the split, which was made of 'data': " in err
        assert "1 missing ('train/99') and 1 changed ('train/3')" in err
    for words, says in (
        (("evaluate", "o", "--data", "none"), "no data at 'none'"),
        (("train", *named, "--data", "other.npz", "--out", "new"), "goes with --resume"),
    ):
        code, _, err = qunlearn(*words)
        assert code == 2
        assert says in err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_moved_run_finds_its_neighbours(qunlearn, tmp_path, monkeypatch):
    """By absolute paths, and with the working folder elsewhere: nothing is where it was."""
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    _, data = write("npz", home)
    train = ("train", "--dataset", data, *SETTINGS)
    assert qunlearn(*train, "--out", home / "runs" / "o")[0] == 0
    assert qunlearn("forget", home / "runs" / "o", *GA, "--out", home / "runs" / "ga")[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr(Checkpointer, "save", ctrl_c(Checkpointer.save))
        ask = ("--random", 0.1, "--method", "ft", "--threads", 1, "--epochs", 2)
        assert qunlearn("forget", home / "runs" / "o", *ask, "--out", home / "runs" / "ft")[0] == 1
        words = ("--random", 0.1, "--methods", "ga", "--seeds", 1, "--threads", 1)
        assert qunlearn("compare", home / "runs" / "o", *words, "--out", home / "table")[0] == 1
    away = tmp_path / "a" / "b"
    away.parent.mkdir()
    shutil.move(home, away)
    for words in (
        ("evaluate", away / "runs" / "ga"),
        ("report", away / "runs" / "ga"),
        ("forget", "--resume", "--out", away / "runs" / "ft"),
        ("compare", "--resume", "--out", away / "table"),
    ):
        code, _, err = qunlearn(*words)
        assert code == 0, (words, err)
    assert origin_of(Run.open(away / "runs" / "ga")).path.resolve() == away / "runs" / "o"
    # Another run of that name is not taken for it.
    shutil.rmtree(away / "runs" / "o")
    shutil.copytree(away / "runs" / "ft", away / "runs" / "o")
    assert origin_of(Run.open(away / "runs" / "ga")) is None


def test_names_are_looked_for_near_a_folder(tmp_path, monkeypatch):
    (tmp_path / "runs" / "new").mkdir(parents=True)
    (tmp_path / "runs" / "old").mkdir()
    (tmp_path / "old").mkdir()
    folder = tmp_path / "runs" / "new"
    found = list(nearby(folder, "/gone/runs/old"))
    assert found == [tmp_path / "runs" / "old", tmp_path / "old"]
    monkeypatch.chdir(tmp_path)
    assert next(nearby(folder, "old")).resolve() == tmp_path / "old"
    assert list(nearby(folder, "a\0b")) == []
    assert list(nearby(folder, "/".join(["unheard-of"] * 30_000))) == []
