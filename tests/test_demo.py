"""The demo's story holds: the network has memorised its digits, and forgetting shows."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from qunlearn.data import load_dataset
from qunlearn.demo import demo, noisy_digits


@pytest.mark.usefixtures("quick_children")
def test_the_story_means_something(tmp_path):
    result = demo(tmp_path, samples=100, epochs=40)
    known, unseen = (result.original.parts[part].accuracy for part in ("train", "test"))
    assert known > unseen + 15
    before = result.forgotten.before
    assert before.FA - result.forgotten.FA > 10  # it forgot something
    assert result.forgotten.reference.FA < before.FA - 10  # which Retrain does not know either
    assert result.forgotten.relearning is not None
    assert result.verdict.word
    assert f"{result.beside.word}:" in result.report.read_text()  # the page says what is printed
    assert 0 < result.seconds < result.retraining
    page = result.report.read_text()
    assert "cnn at 0.8 of its width; bits of weights 4, of inputs 4" in page
    assert "in the first and last layer 8 (lsq+)" in page
    assert "a model retrained without them gets" in page


def test_what_it_prints_says_what_happened_and_what_to_try_next(qunlearn, tmp_path, monkeypatch):
    small = demo(tmp_path / "small", samples=60, epochs=3)
    monkeypatch.setattr("qunlearn.demo.demo", lambda out, seed: small)
    code, out, _ = qunlearn("demo", "--out", tmp_path / "new")
    assert code == 0
    lines = out.splitlines()
    assert next(line for line in lines if line.startswith("Did the model forget?"))
    assert f"judged by that network? {small.beside.answer}" in out
    assert [line.split()[1] for line in lines[-3:]] == ["init", "train", "forget"]
    assert not re.search(r"\b(FA|RA|TA|MIA|AG)\b", out)
    asked = json.loads(qunlearn("demo", "--json", "--out", tmp_path / "new")[1])
    assert asked["forgotten"]["FA"] == small.forgotten.FA
    assert asked["verdict"]["word"] == small.verdict.word
    assert asked["beside"]["word"] == small.beside.word


def test_the_noise_is_each_digits_own_and_always_the_same(tmp_path):
    path = noisy_digits(tmp_path, 100)
    first, again = (load_dataset(str(p)) for p in (path, noisy_digits(tmp_path, 100)))
    assert first.images.equal(again.images)
    clean = load_dataset("digits", subset=100)
    noise = first.images[:100].double() - clean.images[:100].double()
    assert int((~first.is_test).sum()) == 100
    assert np.corrcoef(noise[0].flatten(), noise[1].flatten())[0, 1] == pytest.approx(0, abs=0.5)
    assert noise.std() > 50
