"""Samples that are to be forgotten, and are retained under another id."""

import json

import numpy as np
import pytest
from conftest import SMALL, flags

from qunlearn.data import Split, as_image_data, load_dataset


def made(copies):
    """Twelve different images, and copies of some of them under ids of their own."""
    images = np.random.default_rng(0).integers(0, 256, (12, 8, 8), dtype=np.uint8)
    rows = [*range(12), *copies]
    ids = [*(f"a{k}" for k in range(12)), *(f"copy of a{k}" for k in copies)]
    labels = np.array([k % 2 for k in rows])
    return as_image_data((images[rows], labels), ids=ids)


def test_copies_that_are_retained_are_found():
    split = Split.make(made([1, 2, 3]), held_out=["a11"])
    assert split.forget_ids(["a0", "a5"]).duplicates() == {}
    assert split.forget_ids(["a0", "a5"]).duplicates() == {}
    assert split.forget_ids(["a2", "a0", "copy of a3"]).duplicates() == {
        "a2": "copy of a2",
        "copy of a3": "a3",
    }
    # Both of a pair are forgotten, at once or one after the other: nothing is left of them.
    both = split.forget_ids(["a1", "copy of a1"])
    assert both.duplicates() == {}
    assert split.forget_ids(["a1"]).forget_ids(["copy of a1"]).duplicates() == {}


def test_the_same_picture_with_another_label_is_another_sample():
    data = made([])
    images = np.concatenate([data.images.numpy(), data.images.numpy()[:1]])
    labels = np.append(data.labels.numpy(), 1)
    split = Split.make(as_image_data((images, labels)), held_out=["train/11"])
    assert split.forget_ids(["train/0"]).duplicates() == {}


def test_forget_says_so(qunlearn, tmp_path):
    digits = load_dataset("digits", subset=200)
    parts = {"train": ~digits.is_test, "test": digits.is_test}
    arrays = {f"x_{name}": digits.images[rows].numpy()[:, 0] for name, rows in parts.items()}
    arrays |= {f"y_{name}": digits.labels[rows].numpy() for name, rows in parts.items()}
    for name in ("x_train", "y_train"):
        arrays[name] = np.concatenate([arrays[name], arrays[name][:20]])
    np.savez(tmp_path / "a.npz", **arrays)
    settings = flags({**SMALL, "dataset": tmp_path / "a.npz", "epochs": 1})
    assert qunlearn("train", *settings, "--out", tmp_path / "run")[0] == 0
    split = json.loads((tmp_path / "run" / "split.json").read_text())["parts"]["train"]
    pairs = [(f"train/{k}", f"train/{200 + k}") for k in range(20)]
    first, copy = next(pair for pair in pairs if pair[0] in split and pair[1] in split)
    (tmp_path / "ids.txt").write_text(first)
    words = [tmp_path / "run", "--ids", tmp_path / "ids.txt", "--method", "ft", "--epochs", 1]
    code, out, err = qunlearn("forget", *words, "--threads", 1, "--out", tmp_path / "forgot")
    assert (code, err) == (0, "")
    said = f"retained under other ids too: 1 ({first} as {copy})"
    assert said in out
    told = json.loads((tmp_path / "forgot" / "metrics.json").read_text())["duplicates"]
    assert told["copies"] == {first: copy}


@pytest.mark.parametrize("method", ["calibrated", "ga", "salun", "retrain"])
def test_one_sample_can_be_forgotten(qunlearn, run_folder, tmp_path, method):
    sample = next(iter(json.loads((run_folder / "split.json").read_text())["parts"]["train"]))
    (tmp_path / "one.txt").write_text(sample)
    words = [run_folder, "--ids", tmp_path / "one.txt", "--method", method, "--threads", 1]
    words += ["--epochs", 1, "--accept"]
    code, _, err = qunlearn("forget", *words, "--out", tmp_path / "run")
    assert (code, err) == (0, "")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["parts"]["forget"]["samples"] == 1
