from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from data.toy_data import make_data
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import qunlearn as qu
from qunlearn.data import Loader
from qunlearn.data.draw import generator
from qunlearn.errors import UserError


@settings(max_examples=100, deadline=None)
@given(n=st.integers(0, 200), batch_size=st.integers(1, 70), seed=st.integers(-5, 2**70))
def test_an_epoch_is_a_permutation_in_equal_batches(n, batch_size, seed):
    data = make_data([0] * max(n, 1), size=1)
    index = torch.arange(n)
    loader = Loader(data, index, batch_size, seed=seed)
    sizes = [len(batch.index) for batch in loader.epoch(3)]
    assert len(sizes) == len(loader) == -(-n // batch_size)
    seen = [row for batch in loader.epoch(3) for row in batch.index.tolist()]
    assert sorted(seen) == list(range(n))
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    assert sizes == [loader.size(step) for step in range(len(loader))]


def test_any_step_can_be_repeated_alone():
    data = make_data([k % 4 for k in range(50)], crop=2, flip=True)
    first = list(Loader(data, torch.arange(50), 8, seed=5).epoch(2))
    other = Loader(data, torch.arange(50), 8, seed=5)
    for step in reversed(range(len(other))):
        batch = other.batch(2, step)
        assert torch.equal(batch.images, first[step].images)
        assert torch.equal(batch.labels, first[step].labels)
    late = list(other.epoch(2, start=4))
    assert len(late) == len(first) - 4
    assert torch.equal(late[0].images, first[4].images)


def test_seed_epoch_and_step_are_mixed_not_added():
    data = make_data([0] * 64, crop=2)
    index = torch.arange(64)

    def order(seed: int, epoch: int) -> list[int]:
        return [
            r for b in Loader(data, index, 64, seed=seed).epoch(epoch) for r in b.index.tolist()
        ]

    orders = [order(seed, epoch) for seed in range(4) for epoch in range(4)]
    assert len({tuple(one) for one in orders}) == 16
    draws = {
        tuple(generator("augmentation", a, b, c).integers(0, 1000, 4).tolist())
        for a in range(6)
        for b in range(6)
        for c in range(6)
    }
    assert len(draws) == 216
    assert generator("x", 1, 23).random() != generator("x", 12, 3).random()
    assert generator("x", np.int64(7)).random() == generator("x", 7).random()


def test_augmentation_differs_for_every_seed_epoch_and_step():
    data = make_data([0] * 32, crop=2, flip=True)
    same = dataclasses.replace(data, images=data.images[:1].expand(32, -1, -1, -1).contiguous())
    seen = set()
    for seed in range(3):
        loader = Loader(same, torch.arange(32), 8, seed=seed, shuffle=False)
        for epoch in range(3):
            seen |= {batch.images.numpy().tobytes() for batch in loader.epoch(epoch)}
    assert len(seen) == 3 * 3 * 4


def test_without_shuffle_and_augmentation_the_part_comes_in_order():
    data = make_data([k % 4 for k in range(30)], crop=2, flip=True)
    index = torch.tensor([7, 3, 21, 8, 9])
    batches = list(Loader(data, index, 2, shuffle=False, augment=False).epoch(0))
    assert torch.equal(torch.cat([batch.index for batch in batches]), index)
    images = torch.cat([batch.images for batch in batches])
    assert torch.equal(images, data.normalise(data.images[index]))
    labels = torch.cat([batch.labels for batch in batches])
    assert torch.equal(labels, data.labels[index])


@pytest.mark.parametrize(("crop", "flip"), [(2, True), (3, False), (0, True)])
@pytest.mark.parametrize("floats", [False, True])
def test_augmentation_agrees_with_one_image_at_a_time(crop, flip, floats):
    """Each image must be a window of its padded self, perhaps mirrored: found by exhaustion."""
    data = make_data([0] * 40, crop=crop, flip=flip)
    if floats:
        data = dataclasses.replace(data, images=data.images.float() / 7)
    batch = Loader(data, torch.arange(40), 40, seed=1).batch(0, 0)
    height, width = data.image_size
    offsets, mirrored = set(), 0
    for image, row in zip(batch.images, batch.index.tolist(), strict=True):
        raw = data.images[row].numpy()
        padded = np.zeros((3, height + 2 * crop, width + 2 * crop), dtype=raw.dtype)
        padded[:, crop : crop + height, crop : crop + width] = raw
        found = []
        for down in range(2 * crop + 1):
            for right in range(2 * crop + 1):
                window = padded[:, down : down + height, right : right + width]
                for mirror in (False, True):
                    view = window[:, :, ::-1] if mirror else window
                    truth = data.normalise(torch.from_numpy(view.copy())[None])[0]
                    if torch.equal(truth, image):
                        found.append((down, right, mirror))
        assert len(found) == 1
        offsets.add(found[0][:2])
        mirrored += found[0][2]
    if crop:
        assert {down for down, _ in offsets} == set(range(2 * crop + 1))
        assert {right for _, right in offsets} == set(range(2 * crop + 1))
    assert 8 < mirrored < 32 if flip else mirrored == 0


def test_the_data_is_not_changed_by_augmentation():
    data = make_data([0] * 20, flip=True)
    before = data.images.clone()
    list(Loader(data, torch.arange(20), 7).epoch(0))
    assert torch.equal(data.images, before)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(12, 60), batch_size=st.integers(6, 20), world=st.integers(1, 5))
def test_processes_together_see_what_one_would(n, batch_size, world):
    data = make_data([k % 4 for k in range(n)], crop=1, flip=True, size=4)
    index = torch.arange(n)
    alone = Loader(data, index, batch_size, seed=3)
    if n // len(alone) < world:
        return
    ranks = [
        Loader(data, index, batch_size, seed=3, rank=rank, world=world) for rank in range(world)
    ]
    for step in range(len(alone)):
        whole = alone.batch(1, step)
        slices = [rank.batch(1, step) for rank in ranks]
        assert all(len(part.index) for part in slices)
        assert torch.equal(torch.cat([part.images for part in slices]), whole.images)
        assert torch.equal(torch.cat([part.index for part in slices]), whole.index)


def test_memory_mapped_images_give_the_same_batches(tmp_path):
    data = make_data([k % 4 for k in range(30)], crop=2, flip=True)
    np.save(tmp_path / "x.npy", data.images.numpy())
    mapped = torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="c"))
    other = dataclasses.replace(data, images=mapped)
    one, two = (Loader(each, torch.arange(30), 16).batch(0, 1) for each in (data, other))
    assert torch.equal(one.images, two.images)


def test_bad_requests_are_refused():
    data = make_data([0] * 10)
    with pytest.raises(UserError, match="batch size is 0"):
        Loader(data, torch.arange(10), 0)
    with pytest.raises(UserError, match="The rank is 2"):
        Loader(data, torch.arange(10), 4, rank=2, world=2)
    with pytest.raises(UserError, match="leave some of the 4 processes"):
        Loader(data, torch.arange(10), 3, world=4)
    with pytest.raises(IndexError):
        Loader(data, torch.arange(10), 4).batch(0, 3)


@given(count=st.integers(1, 500), batch_size=st.integers(1, 80))
def test_no_batch_is_smaller_than_half(count, batch_size):
    loader = Loader(make_data([0, 1, 2]), torch.zeros(count, dtype=torch.int64), batch_size)
    sizes = [loader.size(step) for step in range(len(loader))]
    assert sum(sizes) == count
    assert max(sizes) <= batch_size
    assert min(sizes) >= min(count, batch_size // 2)


@given(count=st.integers(0, 500), batch_size=st.integers(1, 80), world=st.integers(1, 5))
def test_the_smallest_share_is_that_of_the_smallest_batch(count, batch_size, world):
    data = make_data([0, 1, 2])
    index = torch.zeros(count, dtype=torch.int64)
    assume(not count or count // -(-count // batch_size) >= world)
    loaders = [Loader(data, index, batch_size, rank=rank, world=world) for rank in range(world)]
    shares = [len(batch.labels) for loader in loaders for batch in loader.epoch(0)]
    assert loaders[0].smallest_share == min(shares, default=0)


def test_an_epoch_looks_at_each_batch_a_few_times_only(monkeypatch):
    looked = []
    span = Loader._span
    monkeypatch.setattr(Loader, "_span", lambda self, step: looked.append(step) or span(self, step))
    split = qu.Split.make(qu.load_dataset("digits", subset=200))
    model = qu.ModelSpec("cnn", classes=10, channels=1, size=8).build(seed=0)
    qu.train(model, split, epochs=1, batch_size=2)
    steps = max(looked) + 1
    assert steps >= 80
    assert len(looked) <= 4 * steps
