"""After forgotten samples are erased from the data, every command says what it still can."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from conftest import SMALL, flags
from sklearn.datasets import load_digits

from qunlearn.data import Split
from qunlearn.runs.data import split_of
from qunlearn.runs.model_file import load
from qunlearn.runs.origin import origin_of
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
        "id_test": np.array([f"t{i}" for i in range(200)]),
    }
    np.savez(path, **arrays)
    return path, arrays


def save(path, arrays, gone=()):
    """Write the arrays without the samples of these names."""
    kept = dict(arrays)
    for part in ("train", "test"):
        left = ~np.isin(arrays[f"id_{part}"], list(gone))
        kept |= {k: v[left] for k, v in arrays.items() if k.endswith(f"_{part}")}
    np.savez(path, **kept)


def train(qunlearn, path, **more):
    small = {k: v for k, v in SMALL.items() if k != "subset"} | {"dataset": path} | more
    code, _, err = qunlearn("train", *flags(small), "--out", "o")
    assert code == 0, err


def test_all_samples_of_a_person_can_be_erased(qunlearn, files, tmp_path, monkeypatch):
    path, arrays = tmp_path / "digits.npz", files[1]
    save(path, arrays)
    monkeypatch.chdir(tmp_path)
    # Every sample but one of the training part: all of a subset, of which some will be gone.
    train(qunlearn, path, subset=199, split_seed=3)
    split = split_of(Run.open(tmp_path / "o"))
    ids = split.data.ids
    theirs = {
        part: [ids[row] for row in rows[:count].tolist()]
        for part, rows, count in (
            ("train", split.train, 12),
            ("held_out", split.held_out, 2),
            ("test", split.test, 5),
        )
    }
    person = [name for names in theirs.values() for name in names]
    table = [f"{name},{int(name in person)}" for name in ids]
    (tmp_path / "people.csv").write_text("\n".join(["id,person", *table]))
    ask = ("--where", "person == 1", "--metadata", "people.csv", "--threads", 1)
    for method in ("ga", "retrain"):
        code, out, err = qunlearn("forget", "o", *ask, "--method", method, "--out", method)
        assert code == 0, err
        assert "forgotten: 12, retired: 7 (2 held out, 5 test), which are no longer" in out
    metrics = Run.open(tmp_path / "ga").metrics
    sizes = {part: row["samples"] for part, row in metrics["parts"].items()}
    assert sizes == {
        "retain": len(split.train) - 12,
        "forget": 12,
        "held_out": len(split.held_out) - 2,
        "test": len(split.test) - 5,
    }
    assert metrics["before"]["parts"]["test"]["samples"] == sizes["test"]
    assert qunlearn("evaluate", "ga", "--reference", "retrain")[0] == 0
    assert qunlearn("report", "ga", "--reference", "retrain")[0] == 0
    assert qunlearn("export", "ga", "--out", "before.onnx")[0] == 0

    save(path, arrays, person)
    for words in (
        ("evaluate", "ga"),
        ("report", "ga"),
        ("export", "ga", "--out", "after.onnx"),
        ("check", "ga"),
        ("describe", "ga"),
    ):
        code, out, err = qunlearn(*words)
        assert code == 0, (words, err)
    # The next person's request, by a table that still names the first one's samples.
    table = [f"{name},{2 if name in ids[60:70] else 1 if name in person else 0}" for name in ids]
    (tmp_path / "people.csv").write_text("\n".join(["id,person", *table]))
    again = ("forget", "ga", "--where", "person == 2", "--method", "ga", "--out", "second")
    code, out, err = qunlearn(*again)
    assert code == 0, err
    later = split_of(Run.open(tmp_path / "second"))
    assert {*later.retired["test"]} >= {*theirs["test"]}
    assert not {*later.data.ids} & {*person}
    # The run before does not know of the request, and says which samples it misses.
    code, _, err = qunlearn("evaluate", "o")
    assert (code, err.count("\n")) == (2, 1)
    assert "19 missing" in err


def test_a_person_whose_samples_were_never_trained_on(qunlearn, files, tmp_path, monkeypatch):
    path, arrays = tmp_path / "digits.npz", files[1]
    save(path, arrays)
    monkeypatch.chdir(tmp_path)
    train(qunlearn, path)
    assert qunlearn("forget", "o", "--random", 0.1, "--method", "ga", "--out", "ga")[0] == 0
    test = [f"t{i}" for i in range(50)]
    (tmp_path / "ids.txt").write_text("\n".join(test))
    code, _, err = qunlearn("compare", "o", "--ids", "ids.txt", "--out", "table")
    assert code == 2
    assert "nothing to compare" in err
    for before, after in (("o", "o2"), ("ga", "ga2")):
        code, out, err = qunlearn("forget", before, "--ids", "ids.txt", "--out", after)
        assert code == 0, err
        assert "forgotten: 0, retired: 50 (0 held out, 50 test)" in out
        assert "the weights are unchanged" in out
        old, new = (load(tmp_path / name).state_dict() for name in (before, after))
        assert all(torch.equal(old[name], new[name]) for name in new)
        assert qunlearn("check", after)[0] == 0
    then, now = (Run.open(tmp_path / name) for name in ("ga", "ga2"))
    assert now.metrics["before"]["parts"]["test"]["samples"] == 150
    assert now.metrics["FA"] == then.metrics["FA"]
    assert origin_of(now).path.name == "o"
    save(path, arrays, test)
    for words in (("evaluate", "o2"), ("evaluate", "ga2"), ("report", "ga2")):
        code, _, err = qunlearn(*words)
        assert code == 0, (words, err)
    (tmp_path / "ids.txt").write_text("\n".join(f"t{i}" for i in range(50, 200)))
    code, _, err = qunlearn("forget", "o2", "--ids", "ids.txt", "--out", "none")
    assert (code, err.count("\n")) == (2, 1)
    assert "left to evaluate on" in err
    assert not (tmp_path / "none").exists()


def test_an_export_needs_only_a_few_test_samples(qunlearn, files, tmp_path, monkeypatch):
    path, arrays = tmp_path / "digits.npz", files[1]
    save(path, arrays)
    monkeypatch.chdir(tmp_path)
    train(qunlearn, path)
    save(path, arrays, [f"n{i}" for i in range(190)] + [f"t{i}" for i in range(195)])
    code, out, err = qunlearn("export", "o", "--out", "few.onnx")
    assert code == 0, err
    assert "of 5 samples" in out
    changed = dict(arrays, x_test=255 - arrays["x_test"])
    save(path, changed)
    code, _, err = qunlearn("export", "o", "--out", "other.onnx")
    assert (code, err.count("\n")) == (2, 1)
    assert "changed" in err


def test_what_is_left_to_say(qunlearn, files, tmp_path, monkeypatch):
    path, arrays = files
    monkeypatch.chdir(tmp_path)
    train(qunlearn, path)
    for method in ("ga", "retrain"):
        words = ("--random", 0.1, "--method", method, "--threads", 1, "--out", method)
        assert qunlearn("forget", "o", *words)[0] == 0
    split = split_of(Run.open(tmp_path / "ga"))
    save(path, arrays, split.requests[-1].ids)

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
    assert "classes that were to be forgotten" not in (tmp_path / "ga" / "report.html").read_text()


def test_what_is_gone_is_judged_by_what_was_asked(digits):
    data = digits.data
    for split, whole in ((digits.forget_random(0.1), False), (digits.forget_class(3), True)):
        assert split.whole_classes == whole
        left = [i for i, name in enumerate(data.ids) if name not in split.requests[-1].ids]

        erased = Split.from_json(split.to_json(), data.take(torch.tensor(left)))
        assert not len(erased.forget)
        assert erased.whole_classes == whole
