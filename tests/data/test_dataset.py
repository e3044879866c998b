from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter

import numpy as np
import pytest
import torch
from data.toy_data import make_data
from hypothesis import given, settings
from hypothesis import strategies as st

from qunlearn.errors import UserError


def test_normalise_is_pixel_minus_mean_over_std(toy):
    images = toy.images[:5]
    kept = images.clone()
    truth = np.empty(images.shape, dtype=np.float64)
    for channel in range(3):
        pixels = images[:, channel].numpy() / 255.0
        truth[:, channel] = (pixels - toy.mean[channel]) / toy.std[channel]
    result = toy.normalise(images)
    assert result.dtype == torch.float32
    np.testing.assert_allclose(result.numpy(), truth, atol=1e-5)
    assert torch.equal(images, kept)


def test_normalise_leaves_float_images_alone(toy):
    floats = dataclasses.replace(toy, images=toy.images.float())
    before = floats.images.clone()
    result = floats.normalise(floats.images)
    assert torch.equal(floats.images, before)
    assert result[0, 1, 0, 0].item() == pytest.approx((before[0, 1, 0, 0].item() - 0.2) / 0.25)


def test_index_of_finds_and_hints(toy):
    assert toy.index_of(["train/3", "test/0"]).tolist() == [3, 40]
    with pytest.raises(UserError, match="no sample '7' in toy: did you mean 'train/7'"):
        toy.index_of(["7"])
    # Another sample is never offered: whoever takes the hint would have the wrong one forgotten.
    for name in ("trian/12", "train/120", "???"):
        with pytest.raises(UserError, match="ids look like 'train/0'"):
            toy.index_of([name])


def test_hash_is_blake2b_of_kind_pixels_and_label(toy):
    text = b"uint8(3, 6, 7)" + str(int(toy.labels[5])).encode() + b"|"
    truth = hashlib.blake2b(text + toy.images[5].numpy().tobytes(), digest_size=16).hexdigest()
    assert toy.hashes([5, 5]) == [truth, truth]


def test_hash_changes_with_one_pixel_the_label_and_the_type(toy):
    images = toy.images.clone()
    images[3, 0, 0, 0] ^= 1
    labels = toy.labels.clone()
    labels[4] = (labels[4] + 1) % 4
    changed = dataclasses.replace(toy, images=images, labels=labels)
    old, new = toy.hashes(range(48)), changed.hashes(torch.arange(48))
    assert [k for k in range(48) if old[k] != new[k]] == [3, 4]
    floats = dataclasses.replace(toy, images=toy.images.float())
    assert not set(floats.hashes(range(48))) & set(old)


def test_subset_is_balanced_fixed_and_keeps_the_test_part(toy):
    small = toy.subset(10, seed=1)
    train = small.labels[~small.is_test]
    assert sorted(Counter(train.tolist()).values()) == [2, 2, 3, 3]
    assert [name for name in small.ids if name.startswith("test/")] == list(toy.ids[40:])
    assert small.ids == toy.subset(10, seed=1).ids != toy.subset(10, seed=2).ids
    where = toy.index_of(small.ids)
    assert torch.equal(small.images, toy.images[where])
    assert torch.equal(small.labels, toy.labels[where])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=4, max_size=60), st.data())
def test_subset_is_as_balanced_as_the_classes_allow(labels, draw):
    data = make_data(labels)
    n = draw.draw(st.integers(len(set(labels)), len(labels)))
    small = data.subset(n, seed=0)
    assert len(small) == n
    have, kept = Counter(labels), Counter(small.labels.tolist())
    # A class is smaller than another by more than one only if it gave all it had.
    for label in have:
        assert kept[label] == have[label] or kept[label] >= max(kept.values()) - 1


def test_subset_does_not_depend_on_the_order_of_the_set(toy):
    backwards = toy.take(torch.arange(47, -1, -1))
    assert set(toy.subset(12).ids) == set(backwards.subset(12).ids)


@pytest.mark.parametrize("n", [0, 3, 41])
def test_subset_of_impossible_size_is_refused(toy, n):
    with pytest.raises(UserError, match=rf"subset of {n} .* from 4 .* to 40"):
        toy.subset(n)


def test_join_aligns_columns_and_leaves_others_empty(toy, tmp_path):
    path = tmp_path / "m.csv"
    path.write_text('\ufeffuser,id,note\n7,train/3,"a, b"\n8,test/0,\n')
    joined = toy.join(path)
    assert joined.metadata["user"][3] == "7"
    assert joined.metadata["note"][3] == "a, b"
    assert joined.metadata["user"][40] == "8"
    assert joined.metadata["user"][4] == ""
    small = joined.subset(4)
    for position, name in enumerate(small.ids):
        assert small.metadata["user"][position] == {"train/3": "7", "test/0": "8"}.get(name, "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user\n7\n", "no column 'id'"),
        ("", "no column 'id'"),
        ("id,user\ntrain/99,7\n", "no sample 'train/99'"),
        ("id,user\ntrain/1,7\ntrain/1,8\n", "'train/1' occurs twice"),
        ("id,user,user\ntrain/1,7,8\n", "'user' occurs twice"),
        ("id,user\ntrain/1,7,8\n", "Row 2 .* 3 cells"),
        ('id,user\n"train/1', "not valid CSV"),
    ],
)
def test_join_refuses_bad_files(toy, tmp_path, text, message):
    path = tmp_path / "m.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        toy.join(path)


def test_join_refuses_a_column_that_is_there_and_a_file_that_is_not(toy, tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("id,user\ntrain/1,7\n")
    with pytest.raises(UserError, match="'user' already"):
        toy.join(path).join(path)
    with pytest.raises(UserError, match="There is no file"):
        toy.join(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": ("a",) * 48}, "'a' occurs twice"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, "3 entries in labels"),
        ({"images": torch.zeros(48, 3)}, "N×C×H×W"),
        ({"mean": (0.0,)}, "3 channels"),
        ({"std": (1.0, 0.0, 1.0)}, "positive"),
        ({"classes": ("a", "a", "b", "c")}, "'a' occurs twice"),
        ({"classes": ("a", "b")}, "labels must lie in 0..1"),
        ({"metadata": {"user": ("1",)}}, "'user'"),
    ],
)
def test_inconsistent_sets_are_refused(toy, change, message):
    with pytest.raises(UserError, match=message):
        dataclasses.replace(toy, **change)
