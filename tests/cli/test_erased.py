"""After forgotten samples are erased from the data, every command says what it still can."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from conftest import SMALL, flags
from sklearn.datasets import load_digits

from qunlearn.data import Split, load_dataset
from qunlearn.store.run import Run


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Digits in a file, as one who wants to erase must have them: with their names."""
    found = load_digits()
    images, labels = found.images.astype(np.uint8)[..., None] * 15, found.target
    path = tmp_path_factory.mktemp("erased") / "digits.npz"
    arrays = {
        "x_train": images[:200],
        "y_train": labels[:200],
        "id_train": np.array([f"n{i}" for i in range(200)]),
        "x_test": images[200:400],
        "y_test": labels[200:400],
    }
    np.savez(path, **arrays)
    return path, arrays


def test_what_is_left_to_say(qunlearn, files, tmp_path, monkeypatch):
    path, arrays = files
    monkeypatch.chdir(tmp_path)
    small = {k: v for k, v in SMALL.items() if k != "subset"} | {"dataset": path}
    assert qunlearn("train", *flags(small), "--out", "o")[0] == 0
    for method in ("ga", "retrain"):
        words = ("--random", 0.1, "--method", method, "--threads", 1, "--out", method)
        assert qunlearn("forget", "o", *words)[0] == 0
    split = Split.from_json(Run.open(tmp_path / "ga").split, load_dataset(str(path)))
    forgotten = split.requests[-1].ids
    kept = [i for i, name in enumerate(arrays["id_train"]) if name not in forgotten]
    train = {k: v[kept] if k.endswith("train") else v for k, v in arrays.items()}
    np.savez(path, **train)

    assert qunlearn("evaluate", "ga")[0] == 0
    assert qunlearn("check", "ga")[0] == 0
    metrics = json.loads((tmp_path / "ga" / "metrics.json").read_text())
    for words in (
        ("evaluate", "ga", "--reference", "retrain"),
        ("report", "ga", "--reference", "retrain"),
        ("audit", "bits", "ga"),
    ):
        code, out, err = qunlearn(*words)
        assert (code, err.count("\n")) == (2, 1), (words, out, err)
        assert "are erased from the data" in err
    assert json.loads((tmp_path / "ga" / "metrics.json").read_text()) == metrics
    code, _, err = qunlearn("report", "ga")
    assert code == 0, err
    assert "classes that were to go" not in (tmp_path / "ga" / "report.html").read_text()


def test_what_is_gone_is_judged_by_what_was_asked(digits):
    data = digits.data
    for split, whole in ((digits.forget_random(0.1), False), (digits.forget_class(3), True)):
        assert split.whole_classes == whole
        left = [i for i, name in enumerate(data.ids) if name not in split.requests[-1].ids]

        erased = Split.from_json(split.to_json(), data.take(torch.tensor(left)))
        assert not len(erased.forget)
        assert erased.whole_classes == whole
