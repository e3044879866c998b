"""Keyed manifests: what they tell without the key, and what is left when a key is destroyed."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
from conftest import SMALL, flags

from qunlearn.data import Split, load_dataset, manifest
from qunlearn.data.manifest_key import ManifestKey
from qunlearn.errors import UserError
from qunlearn.metrics import auc
from qunlearn.runs.data import split_of
from qunlearn.store.run import Run


@pytest.fixture(scope="module")
def members():
    """Digits of which half are in a manifest, and half are not."""
    data = load_dataset("digits")
    rows = np.random.default_rng(0).permutation(len(data))
    inside, outside = rows[: len(rows) // 2].tolist(), rows[len(rows) // 2 :].tolist()
    return data, inside, outside


def distance(mark: str, marks: list[str]) -> int:
    """In how many bits a hash differs from the nearest one in the manifest."""
    return min((int(mark, 16) ^ int(other, 16)).bit_count() for other in marks)


def test_without_the_key_pictures_cannot_be_found_in_a_manifest(members):
    data, inside, _ = members
    key = ManifestKey.new()
    plain, names = data.hashes(inside), [data.ids[row] for row in inside]
    kept = [key.seal(name, mark) for name, mark in zip(names, plain, strict=True)]
    assert not {*kept} & {*data.hashes(range(len(data)))}
    # The attacker has all pictures and ids, and even a key: another one.
    other = ManifestKey.new()

    def tell(row: int, marks: list[str]) -> float:
        (mark,) = data.hashes([row])
        guess = other.seal(data.ids[row], mark)
        return -float(min(distance(mark, marks), distance(guess, marks)))

    def score(marks: list[str]) -> float:
        found = [torch.tensor([tell(row, marks) for row in rows[:150]]) for rows in members[1:]]
        return auc(*found)

    assert score(plain) == pytest.approx(1.0)  # unkeyed: every member is found
    assert abs(score(kept) - 0.5) < 0.1


def test_a_destroyed_key_leaves_the_rest_checkable(digits):
    split = dataclasses.replace(digits, key=ManifestKey.new())
    text, gone = split.to_json(), split.data.ids[int(split.train[0])]
    names = manifest.parse(text).names
    later = split.key.without({gone}, names - {gone})
    with pytest.raises(UserError, match=f"1 changed .'{gone}'"):
        Split.from_json(text, split.data, later)
    plain = dict(zip(split.data.ids, split.data.hashes(range(len(split.data))), strict=True))
    marks = manifest.parse(text).train
    assert all(later.seal(n, plain[n]) == marks[n] for n in marks if n != gone)
    assert later.seal(gone, plain[gone]) != marks[gone]
    assert split.key.seed not in later.text()


def test_runs_have_their_key_in_a_file_of_its_own(run_folder, tmp_path):
    run = Run.open(run_folder)
    key = ManifestKey.read(run_folder)
    assert (run_folder / "split.key").stat().st_mode & 0o777 == 0o600
    assert json.loads(run.split)["format"] == 3
    assert key.seed not in run.split
    split = split_of(run)
    assert not {*manifest.parse(run.split).train.values()} & {*split.data.hashes(split.train)}
    with pytest.raises(UserError, match=r"restore 'split\.key' of the run's folder"):
        Split.from_json(run.split, split.data)
    with pytest.raises(UserError, match="so that the samples cannot be checked"):
        Split.from_json(run.split, split.data, ManifestKey.new())
    shutil.copytree(run_folder, tmp_path / "r")
    (tmp_path / "r" / "split.key").write_text('{"id": "a", "seed": "xx"}')
    with pytest.raises(UserError, match="is damaged"):
        ManifestKey.read(tmp_path / "r")


def test_manifests_made_before_are_still_read(digits):
    assert json.loads(digits.to_json())["format"] == 1
    assert Split.from_json(digits.to_json(), digits.data).key is None


def test_ids_can_be_pseudonyms_everywhere(qunlearn, tmp_path, monkeypatch):
    from qunlearn.data.sources.npz import to_arrays

    monkeypatch.chdir(tmp_path)
    arrays = to_arrays(load_dataset("digits", subset=100))
    for part in ("train", "test"):
        count = len(arrays[f"y_{part}"])
        arrays[f"id_{part}"] = np.array([f"{part}{i}@example.org" for i in range(count)])
    np.savez("people.npz", **arrays)
    small = {k: v for k, v in SMALL.items() if k != "subset"}
    small |= {"epochs": 1, "model": "cnn", "dataset": "people.npz"}
    code, _, err = qunlearn("train", *flags(small), "--pseudonymise", "--out", "runs/o")
    assert code == 0, err
    split = split_of(Run.open(tmp_path / "runs/o"))
    known = {alias: name for name, alias in split.data.aliases.items()}
    first = known[split.data.ids[int(split.train[0])]]
    people = [f"{name},{int(name == first)}" for name in known.values()]
    (tmp_path / "people.csv").write_text("id,who\n" + "\n".join(people))
    (tmp_path / "ids.txt").write_text(known[split.data.ids[int(split.train[1])]])
    more = ("--method", "ga", "--threads", 1)
    code, _, err = qunlearn("forget", "runs/o", "--ids", "ids.txt", *more, "--out", "runs/a")
    assert code == 0, err
    rule = ("--where", "who == 1", "--metadata", "people.csv")
    code, _, err = qunlearn("forget", "runs/a", *rule, *more, "--out", "runs/b")
    assert code == 0, err
    assert qunlearn("report", "runs/b")[0] == 0
    texts = [p.read_bytes() for p in (tmp_path / "runs").rglob("*") if p.is_file()]
    assert not any(b"@example.org" in text for text in texts)
    code, _, err = qunlearn("erase", "runs/b", "--data", "people.npz", "--yes")
    assert code == 0, err
    left = load_dataset("people.npz")
    assert first not in left.ids
    assert len(left) == len(split.data) - 2
    assert qunlearn("evaluate", "runs/b")[0] == 0
