"""Sets that exceed memory, subsets that are read alone, and caches that must not lie."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from data.toy_files import picture, write_cifar10, write_svhn

from qunlearn.data import load_dataset
from qunlearn.data.sources import zipped
from qunlearn.errors import UserError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (40, 5, 6, 3), dtype=np.uint8)
DOUBLES = RNG.normal(size=(40, 3, 5, 6))
KINDS = {
    "bytes": {"x_train": IMAGES[:30], "x_test": IMAGES[30:]},
    "grey": {"x_train": IMAGES[:30, ..., 0], "x_test": IMAGES[30:, ..., 0]},
    "doubles": {
        "x_train": RNG.normal(size=(30, 3, 5, 6)),
        "x_test": RNG.normal(size=(10, 3, 5, 6)),
    },
    "halves": {"x_train": RNG.normal(size=(30, 5, 6)).astype(np.float16)},
}


def same(one, other):
    assert (one.ids, one.classes, one.metadata) == (other.ids, other.classes, other.metadata)
    assert one.images.dtype == other.images.dtype
    assert torch.equal(one.images, other.images)
    assert torch.equal(one.labels, other.labels)
    assert torch.equal(one.is_test, other.is_test)
    assert one.left_out == other.left_out


@pytest.fixture(params=itertools.product(KINDS, [np.savez, np.savez_compressed]))
def file(request, tmp_path):
    """An .npz file of some kind."""
    kind, save = request.param
    arrays = dict(KINDS[kind])
    for name in list(arrays):
        arrays[name.replace("x", "y")] = np.arange(len(arrays[name])) % 3
    save(tmp_path / "mine.npz", **arrays, meta_train_user=np.arange(30).astype(str))
    return tmp_path / "mine.npz"


def test_npz_beyond_the_budget_is_mapped_and_the_same(file, tmp_path, monkeypatch):
    monkeypatch.setattr(zipped, "BLOCK", 400)  # a few images
    cache = tmp_path / "cache"
    direct = load_dataset(str(file), cache_dir=cache)
    assert not cache.exists()
    first = load_dataset(str(file), cache_dir=cache, memory_budget=100)
    (kept,) = cache.rglob("*.npy")
    stamp = kept.stat().st_mtime_ns
    again = load_dataset(str(file), cache_dir=cache, memory_budget=100)
    assert kept.stat().st_mtime_ns == stamp
    with np.load(file) as arrays:
        truth = arrays["x_train"]
    truth = truth[:, None] if truth.ndim == 3 else truth
    truth = np.moveaxis(truth, 3, 1) if truth.shape[3] == 3 else truth
    for data in (direct, first, again):
        same(data, direct)
        assert np.array_equal(data.images[:30].numpy(), truth.astype(data.images.numpy().dtype))
        if truth.dtype == np.uint8:
            assert data.mean == pytest.approx((truth / 255).mean((0, 2, 3)))
            assert data.std == pytest.approx((truth / 255).std((0, 2, 3)))
        else:  # the network sees floats as they are
            assert (set(data.mean), set(data.std)) == ({0.0}, {1.0})


@pytest.mark.parametrize("budget", [100, 1 << 30])
def test_a_subset_of_npz_is_that_of_the_whole(file, tmp_path, budget, monkeypatch):
    monkeypatch.setattr(zipped, "BLOCK", 400)
    options = {"cache_dir": tmp_path / "cache", "memory_budget": budget}
    whole = load_dataset(str(file), **options)
    small = load_dataset(str(file), subset=7, subset_seed=5, **options)
    same(small, whole.subset(7, 5))
    same(whole, load_dataset(str(file), **options))
    assert len(list(tmp_path.rglob("*.npy"))) == (2 if budget == 100 else 0)


def test_npz_in_fortran_order(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, x_train=np.asfortranarray(IMAGES), y_train=np.arange(40) % 3, layout="NHWC")
    data = load_dataset(str(path))
    assert np.array_equal(data.images.numpy(), np.moveaxis(IMAGES, 3, 1))
    with pytest.raises(UserError, match=r"Fortran order; save numpy.ascontiguousarray\(x_train\)"):
        load_dataset(str(path), cache_dir=tmp_path / "cache", memory_budget=100)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_wrong_pixel_in_a_late_block_is_named(tmp_path, monkeypatch, save):
    monkeypatch.setattr(zipped, "BLOCK", 400)
    wrong = np.ones((9, 5, 6))
    wrong[7, 2, 3] = np.nan
    save(tmp_path / "a.npz", x_train=np.ones((9, 5, 6)), y_train=np.arange(9) % 3,
         x_test=wrong, y_test=np.arange(9) % 3)  # fmt: skip
    with pytest.raises(UserError, match="Image 7 of the test part has non-finite pixels"):
        load_dataset(str(tmp_path / "a.npz"), cache_dir=tmp_path / "c", memory_budget=100)
    assert not list(tmp_path.rglob("*.npy"))
    save(tmp_path / "a.npz", x_train=np.ones((9, 5, 6)), y_train=np.arange(9),
         x_test=np.ones((9, 5, 7)), y_test=np.arange(9))  # fmt: skip
    with pytest.raises(UserError, match=r"Training images are 1 by 5 by 6 and test .* 1 by 5 by 7"):
        load_dataset(str(tmp_path / "a.npz"))


MEASURE = """
import resource, sys
from qunlearn.data import load_dataset
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
def load(name, **options):
    data = load_dataset(f"{sys.argv[1]}/{name}.npz", cache_dir=f"{sys.argv[1]}/cache", **options)
    return data.images.nbytes, int(data.images[-1].sum())
load("small", memory_budget=100)
before = peak()
for name in ("stored", "packed"):
    print(*load(name, memory_budget=1 << 20), *load(name, subset=50))
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform == "darwin", reason="counts memory in other units")
def test_memory_stays_small_however_large_the_file(tmp_path):
    images = np.zeros((1000, 160, 160, 3), dtype=np.uint8)  # 77 MB
    images[::3] = RNG.integers(0, 256, (160, 160, 3), dtype=np.uint8)
    labels = np.arange(1000) % 5
    arrays = {"x_train": images, "y_train": labels, "x_test": images[:4], "y_test": labels[:4]}
    np.savez(tmp_path / "small.npz", x_train=images[:9], y_train=labels[:9])
    np.savez(tmp_path / "stored.npz", **arrays)
    np.savez_compressed(tmp_path / "packed.npz", **arrays)
    words = [sys.executable, "-c", MEASURE, tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    *figures, grown = map(int, done.stdout.split())
    each, last = 160 * 160 * 3, int(images[3].sum(dtype=np.int64))
    assert figures == [1004 * each, last, 54 * each, last] * 2
    assert grown < 40e6, f"{grown:,} bytes"


# Subsets of other sources -----------------------------------------------------------------------


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("budget", [100, 1 << 30])
def test_a_subset_of_cifar_or_svhn_is_that_of_the_whole(tmp_path, budget):
    write_cifar10(tmp_path, label=lambda number: number % 3)
    write_svhn(tmp_path, counts=(14, 3))
    for name, n in (("cifar10", 7), ("svhn", 12)):
        options = {"cache_dir": tmp_path / "cache", "memory_budget": budget}
        whole = load_dataset(name, data_dir=tmp_path, **options)
        same(load_dataset(name, data_dir=tmp_path, subset=n, **options), whole.subset(n))
    with pytest.raises(UserError, match=r"subset of 2 .* from 3 .* to 15"):
        load_dataset("cifar10", data_dir=tmp_path, subset=2)


@pytest.mark.parametrize("source", ["photos", "tiny"])
def test_images_that_a_subset_leaves_out_are_not_read(source, request):
    base = request.getfixturevalue(source)
    name = {"photos": str(base), "tiny": "tiny-imagenet"}[source]
    options = {"data_dir": base} if source == "tiny" else {}
    whole = load_dataset(name, **options)
    files = {file.name: file for file in base.rglob("*.JPEG")}
    for seed in range(3):
        truth = whole.subset(4, seed)
        left = [files.get(Path(name).name, base / name) for name in truth.left_out]
        kept = {file: file.read_bytes() for file in left}
        for file in left:
            file.write_bytes(b"not an image")
        same(load_dataset(name, subset=4, subset_seed=seed, **options), truth)
        with pytest.raises(UserError, match="cannot be read"):
            load_dataset(name, **options)
        for file, content in kept.items():
            file.write_bytes(content)


def test_metadata_may_name_what_a_subset_leaves_out(photos, tmp_path):
    whole = load_dataset(str(photos))
    table = tmp_path / "m.csv"
    table.write_text("id;user\n" + "".join(f"{name};{k}\n" for k, name in enumerate(whole.ids)))
    small = load_dataset(str(photos), subset=4, metadata=table)
    assert small.metadata["user"] == tuple(str(whole.ids.index(name)) for name in small.ids)
    with table.open("a") as file:
        file.write("train/cat/99.png;3\n")
    with pytest.raises(UserError, match=r"no sample 'train/cat/99\.png'"):
        load_dataset(str(photos), subset=4, metadata=table)


# Caches that must not lie -----------------------------------------------------------------------


def test_a_changed_image_of_the_same_size_and_time_is_noticed(photos, tmp_path):
    options = {"cache_dir": tmp_path / "cache", "memory_budget": 100}
    file = photos / "train" / "dog" / "2.bmp"
    picture((1, 2, 3), size=(12, 10)).save(file)
    before = load_dataset(str(photos), **options)
    state = file.stat()
    time.sleep(0.02)  # clocks of file systems tick slowly
    picture((4, 5, 6), size=(12, 10)).save(file)
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (state.st_size, state.st_mtime_ns)
    after = load_dataset(str(photos), **options)
    row = int(after.index_of(["train/dog/2.bmp"]))
    assert before.images[row, :, 0, 0].tolist() == [1, 2, 3]
    assert after.images[row, :, 0, 0].tolist() == [4, 5, 6]


def test_erased_images_do_not_live_on_in_the_cache_of_a_subset(photos, tmp_path):
    cache = tmp_path / "cache"
    load_dataset(str(photos), cache_dir=cache, memory_budget=100)
    small = load_dataset(str(photos), subset=4, cache_dir=cache, memory_budget=100)
    assert len(list(cache.rglob("*.npy"))) == 2
    load_dataset(str(photos), subset=5, cache_dir=cache)  # in memory: the others are fresh still
    assert len(list(cache.rglob("*.npy"))) == 2
    gone = next(name for name in small.ids if name.startswith("train/"))
    (photos / gone).unlink()
    load_dataset(str(photos), subset=5, cache_dir=cache)
    assert not list(cache.rglob("*.npy"))


# Links and pipes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place",
    [
        *("train", "train/n1", "train/n1/images", "train/n1/images/n1_0.JPEG", "wnids.txt"),
        *("val", "val/images", "val/images/val_0.JPEG", "val/val_annotations.txt", "words.txt"),
    ],
)
def test_tiny_imagenet_follows_no_link_out_of_its_folder(tiny, tmp_path, place):
    outside = tmp_path / "outside"
    (tiny / place).rename(outside)
    (tiny / place).symlink_to(outside)
    with pytest.raises(UserError, match=r"is a link that leads out of"):
        load_dataset("tiny-imagenet", data_dir=tiny)
    (tiny / place).unlink()
    outside.rename(tiny / "moved")
    (tiny / place).symlink_to(tiny / "moved")  # a link that stays inside
    assert len(load_dataset("tiny-imagenet", data_dir=tiny)) == 8


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("name", ["cifar10", "svhn"])
def test_named_sets_follow_no_link_out_of_their_folder(tmp_path, name):
    write_cifar10(tmp_path / "set")
    write_svhn(tmp_path / "set")
    file = tmp_path / "set" / {"cifar10": "data_batch_3.bin", "svhn": "test_32x32.mat"}[name]
    file.rename(tmp_path / "outside")
    file.symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match=r"is a link that leads out of"):
        load_dataset(name, data_dir=tmp_path / "set")


def test_pipes_are_refused_rather_than_waited_for(tiny, tmp_path):
    write_svhn(tmp_path)
    pipes = {
        "tiny-imagenet": tiny / "train" / "n1" / "images" / "x.JPEG",
        "svhn": tmp_path / "train_32x32.mat",
        str(tmp_path / "a.npz"): tmp_path / "a.npz",
    }
    for name, pipe in pipes.items():
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
        options = {} if name.endswith("npz") else {"data_dir": tmp_path}
        with pytest.raises(UserError, match="regular file"):
            load_dataset(name, **options)
