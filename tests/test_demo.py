"""The demo's story holds: the network has memorised its digits, and forgetting shows."""

from __future__ import annotations

import numpy as np
import pytest

from qunlearn.data import load_dataset
from qunlearn.demo import demo, noisy_digits


def test_the_story_means_something(tmp_path):
    result = demo(tmp_path, samples=150, epochs=10)
    known, unseen = (result.original.parts[part].accuracy for part in ("train", "test"))
    assert known > unseen + 15
    gaps = {row.method: row.AG[0] for row in result.table.methods}
    assert gaps["calibrated"] < gaps["ft"]
    page = result.report.read_text()
    assert "cnn; bits of weights 4, of inputs 4, in the first and last layer 8 (lsq+)" in page
    assert "noisy-digits" in page


def test_the_noise_is_each_digits_own_and_always_the_same(tmp_path):
    path = noisy_digits(tmp_path, 100)
    first, again = (load_dataset(str(p)) for p in (path, noisy_digits(tmp_path, 100)))
    assert first.images.equal(again.images)
    clean = load_dataset("digits", subset=100)
    noise = first.images.double() - clean.images.double()
    assert int((~first.is_test).sum()) == 100
    assert np.corrcoef(noise[0].flatten(), noise[1].flatten())[0, 1] == pytest.approx(0, abs=0.5)
    assert noise.std() > 50
