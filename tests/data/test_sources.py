"""Each source against files that the test itself lays out byte by byte."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from data.toy_files import picture, write_cifar10, write_cifar100, write_svhn
from PIL import Image

from qunlearn.data import Augmentation, Data, load_dataset, sources
from qunlearn.data.sources.npz import to_arrays
from qunlearn.errors import UserError


def test_digits_against_scikit_learn():
    from sklearn.datasets import load_digits

    table = load_digits()
    data = load_dataset("digits")
    assert data.images.shape == (1797, 1, 8, 8)
    assert data.labels.tolist() == table.target.tolist()
    grey = data.images[:, 0].double() * 16 / 255
    assert np.abs(grey.numpy() - table.images).max() < 0.5
    share = torch.bincount(data.labels[data.is_test]) / torch.bincount(data.labels)
    assert (share - 0.25).abs().max() < 0.005
    train = data.images[~data.is_test].double() / 255
    assert data.mean[0] == pytest.approx(train.mean().item(), abs=1e-3)
    assert data.std[0] == pytest.approx(train.std().item(), abs=1e-3)
    assert data.ids[:3] == load_dataset("digits").ids[:3]
    assert int(data.is_test.sum()) == sum(name.startswith("test/") for name in data.ids)


# CIFAR ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("below", ["", "cifar-10-batches-bin"])
def test_cifar10(tmp_path, below):
    write_cifar10(tmp_path / below)
    data = load_dataset("cifar10", data_dir=tmp_path)
    assert data.images.shape == (18, 3, 32, 32)
    assert data.labels.tolist() == [number % 10 for number in range(18)]
    assert data.images[7, 1, 0, :4].tolist() == [8, 20, 0, 20]
    assert data.images[7, 2, 31, 31] == 30
    assert data.ids[14:16] == ("train/14", "test/0")
    assert data.is_test.tolist() == [False] * 15 + [True] * 3
    assert data.classes[3] == "cat"
    assert data.augmentation == Augmentation(crop=4, flip=True)
    (tmp_path / below / "batches.meta.txt").write_text("a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n")
    assert load_dataset("cifar10", data_dir=tmp_path).classes == tuple("abcdefghij")
    (tmp_path / below / "batches.meta.txt").write_text("a\nb\n")
    with pytest.raises(UserError, match=r"batches.meta.txt' has 2 class names instead of 10"):
        load_dataset("cifar10", data_dir=tmp_path)


@pytest.mark.usefixtures("few")
def test_cifar100_has_fine_labels_and_coarse_metadata(tmp_path):
    write_cifar100(tmp_path, names=False)
    for file, mark, count in (("coarse", "c", 20), ("fine", "f", 100)):
        with pytest.raises(UserError, match=rf"{file}_label_names.txt' .* is missing; unpack"):
            load_dataset("cifar100", data_dir=tmp_path)
        names = "\n".join(f"{mark}{k}" for k in range(count))
        (tmp_path / f"{file}_label_names.txt").write_text(names)
    data = load_dataset("cifar100", data_dir=tmp_path)
    assert data.labels.tolist() == [90, 91, 92, 93, 94, 95]
    assert data.metadata["coarse"] == ("c0", "c1", "c2", "c3", "c4", "c5")
    assert data.classes[90] == "f90"
    assert (data.images[4] == 1).all()


@pytest.mark.usefixtures("few")
def test_damaged_cifar_is_named(tmp_path):
    write_cifar10(tmp_path)
    path = tmp_path / "data_batch_4.bin"
    whole = path.read_bytes()
    for content, message in [
        (whole[:-1], r"data_batch_4.bin' is truncated: it has 9,218 bytes instead of 9,219"),
        (whole[:3073], "data_batch_4.bin' is truncated"),
        (b"", "data_batch_4.bin' is truncated"),
        (whole + b"x", "not the official binary version"),
        (whole[:3073] + b"\x0a" + whole[3074:], r"corrupt: record 1 has the label \[10\]"),
    ]:
        path.write_bytes(content)
        with pytest.raises(UserError, match=message):
            load_dataset("cifar10", data_dir=tmp_path)
    path.unlink()
    with pytest.raises(UserError, match=r"lacks 'data_batch_4.bin' in .* --download"):
        load_dataset("cifar10", data_dir=tmp_path)


# Where files are --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "svhn", "tiny-imagenet"])
def test_files_that_were_not_named_or_are_not_there(name, tmp_path):
    with pytest.raises(UserError, match=r"--data-dir DIR.*--download"):
        load_dataset(name, cache_dir=tmp_path)
    with pytest.raises(UserError, match="There is no folder"):
        load_dataset(name, data_dir=tmp_path / "none")
    with pytest.raises(UserError, match="lacks"):
        load_dataset(name, data_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_unknown_names_and_paths(tmp_path):
    with pytest.raises(UserError, match=r"Unknown data set 'cifar11': did you mean 'cifar10'"):
        load_dataset("cifar11")
    with pytest.raises(UserError, match="There is no data set at"):
        load_dataset(str(tmp_path / "none"))
    with pytest.raises(UserError, match="There is no file"):
        load_dataset(str(tmp_path / "none.npz"))
    with pytest.raises(UserError, match="leave out --data-dir"):
        load_dataset(str(tmp_path), data_dir=tmp_path)
    with pytest.raises(UserError, match="--image-size is for folders"):
        load_dataset("digits", image_size=4)


def test_subset_and_metadata_of_a_loaded_set(tmp_path):
    path = tmp_path / "m.csv"
    digits = load_dataset("digits")
    path.write_text("id,user\n" + "".join(f"{name},{k % 7}\n" for k, name in enumerate(digits.ids)))
    data = load_dataset("digits", subset=100, subset_seed=3, metadata=path)
    assert int((~data.is_test).sum()) == 100
    assert data.metadata["user"] == tuple(
        str(digits.ids.index(name) % 7) for name in data.ids
    )  # joined before the subset was taken


def test_a_new_source_is_one_decorated_function(monkeypatch):
    monkeypatch.setattr(sources, "_entries", dict(sources._entries))
    sources.register("mine")(lambda options: load_dataset("digits").subset(10))
    assert len(load_dataset("mine")) == 460


# SVHN -------------------------------------------------------------------------------------------


def test_svhn(tmp_path):
    from scipy.io import loadmat

    write_svhn(tmp_path)
    data = load_dataset("svhn", data_dir=tmp_path)
    assert data.labels.tolist() == [0, 9, 8, 7, 6, 0, 9, 8]
    truth = loadmat(tmp_path / "test_32x32.mat")["X"]
    for channel in range(3):
        assert np.array_equal(data.images[6, channel].numpy(), truth[:, :, channel, 1])
    assert data.ids[4:6] == ("train/4", "test/0")
    assert not data.augmentation.flip


def test_damaged_svhn_is_named(tmp_path):
    write_svhn(tmp_path)
    path = tmp_path / "train_32x32.mat"
    whole = path.read_bytes()
    middle = len(whole) // 2
    for content in (
        whole[: middle // 2],
        whole[:-40],
        b"",
        b"x" * 300,
        whole[:middle] + bytes(64) + whole[middle + 64 :],
    ):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"train_32x32.mat' is truncated, corrupt"):
            load_dataset("svhn", data_dir=tmp_path)
    for changes in (
        {"y": np.array([[11]] * 5, dtype=np.uint8)},
        {"y": np.array([[1]] * 4, dtype=np.uint8)},
        {"X": np.zeros((32, 32, 3, 5))},
        {"X": np.zeros((8, 8, 3, 5), dtype=np.uint8)},
    ):
        write_svhn(tmp_path, **changes)
        with pytest.raises(UserError, match=r"train_32x32.mat' is truncated, corrupt"):
            load_dataset("svhn", data_dir=tmp_path)


# Tiny-ImageNet ----------------------------------------------------------------------------------


def test_tiny_imagenet(tiny, tmp_path):
    data = load_dataset("tiny-imagenet", data_dir=tmp_path)
    assert data.labels.tolist() == [0, 0, 0, 1, 1, 1, 1, 0]
    assert data.ids[1] == "train/n2_1.JPEG"
    assert data.ids[6:] == ("test/val_0.JPEG", "test/val_1.JPEG")
    assert data.classes == ("crane (n2)", "crane (n1)")
    assert (data.images[1, :, 9, 9].int() - torch.tensor([40, 90, 100])).abs().max() <= 2
    assert (data.images[2] == 77).all()  # grey images become three equal channels
    assert data.augmentation == Augmentation(crop=8, flip=True)
    (tiny / "words.txt").write_text("n1\tcrane, bird\n")
    assert load_dataset("tiny-imagenet", data_dir=tiny).classes == ("n2", "crane")


def test_damaged_tiny_imagenet_is_named(tiny):
    file = tiny / "train" / "n1" / "images" / "n1_1.JPEG"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"n1_1.JPEG' cannot be read"):
        load_dataset("tiny-imagenet", data_dir=tiny)
    picture((0, 0, 0), size=(32, 64)).save(file, "JPEG")
    with pytest.raises(UserError, match=r"n1_1.JPEG' has 32×64 pixels where 64×64"):
        load_dataset("tiny-imagenet", data_dir=tiny)
    file.unlink()  # an erased training image is no damage
    assert len(load_dataset("tiny-imagenet", data_dir=tiny)) == 7
    (tiny / "val" / "images" / "val_1.JPEG").unlink()
    with pytest.raises(UserError, match=r"val_1.JPEG.*file that is missing"):
        load_dataset("tiny-imagenet", data_dir=tiny)
    (tiny / "wnids.txt").write_text("n2\nn1\nn9\n")
    with pytest.raises(UserError, match=r"wnids\.txt names 'n9'"):
        load_dataset("tiny-imagenet", data_dir=tiny)


# Folders ----------------------------------------------------------------------------------------


def test_folder(photos):
    data = load_dataset(str(photos))
    assert data.classes == ("cat", "dog")
    assert data.ids[0] == "train/cat/0.png"
    assert data.ids[-1] == "test/dog/1.png"
    assert data.labels.tolist() == [0] * 4 + [1] * 4 + [0] * 2 + [1] * 2
    assert data.is_test.tolist() == [False] * 8 + [True] * 4
    truth = np.asarray(Image.open(photos / "train" / "dog" / "2.png"))
    row = int(data.index_of(["train/dog/2.png"]))
    assert np.array_equal(data.images[row].permute(1, 2, 0).numpy(), truth)
    train = data.images[~data.is_test].double() / 255
    assert data.mean == pytest.approx(train.mean((0, 2, 3)).tolist())
    assert data.std == pytest.approx(train.std((0, 2, 3), correction=0).tolist())
    assert data.name == "photos"
    assert load_dataset("folder", data_dir=photos).ids == data.ids
    assert load_dataset(str(photos), image_size=7).image_size == (7, 7)


def test_folder_without_parts_divides_by_path_alone(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for k in range(60):
            picture(k, size=(2, 2), mode="L").save(tmp_path / name / f"{k}.png")
    (tmp_path / "a" / "notes.txt").write_text("not an image")
    (tmp_path / ".hidden").mkdir()
    data = load_dataset(str(tmp_path))
    assert len(data) == 120
    assert data.classes == ("a", "b")
    for label in (0, 1):
        assert 4 <= int((data.is_test & (data.labels == label)).sum()) <= 22
    for k in range(0, 60, 2):
        (tmp_path / "a" / f"{k}.png").unlink()
    left = load_dataset(str(tmp_path))
    assert len(left) == 90
    assert set(left.ids) < set(data.ids)  # no sample changed its part


def test_bad_folders_are_named(photos, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no training images"):
        load_dataset(str(tmp_path / "empty"))
    picture((0, 0, 0), size=(10, 10)).save(photos / "train" / "cat" / "9.png")
    with pytest.raises(UserError, match=r"9.png' has 10×10 pixels where 12×10 .*--image-size"):
        load_dataset(str(photos))
    assert len(load_dataset(str(photos), image_size=8)) == 13
    (photos / "train" / "cat" / "9.png").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"9.png' cannot be read"):
        load_dataset(str(photos))
    Image.new("I;16", (12, 10)).save(photos / "train" / "cat" / "9.png")
    with pytest.raises(UserError, match=r"9.png' does not have 8 bits"):
        load_dataset(str(photos))
    (photos / "train" / "cat" / "9.png").unlink()
    for size in (0, -3, 10**6):
        with pytest.raises(UserError, match=f"image size is {size}"):
            load_dataset(str(photos), image_size=size)
    (photos / "test" / "cow").mkdir()
    with pytest.raises(UserError, match="class 'cow'"):
        load_dataset(str(photos))


@pytest.mark.parametrize("side", [9_000, 60_000])
def test_image_bombs_are_refused_before_they_are_decoded(tmp_path, side):
    """A file of a few bytes that claims many pixels."""
    (tmp_path / "a").mkdir()
    for k in range(9):
        (tmp_path / "a" / f"{k}.ppm").write_bytes(f"P6 {side} {side} 255\n".encode())
    with pytest.raises(UserError, match=r"claims 9000×9000|cannot be read"):
        load_dataset(str(tmp_path), image_size=8)


def test_a_set_beyond_the_budget_is_mapped_and_the_same(photos, tmp_path):
    cache = tmp_path / "cache"
    direct = load_dataset(str(photos), cache_dir=cache)
    assert not cache.exists()
    mapped = load_dataset(str(photos), cache_dir=cache, memory_budget=100)
    assert torch.equal(direct.images, mapped.images)
    assert (direct.mean, direct.std) == (mapped.mean, mapped.std)
    files = sorted(cache.rglob("*.npy"))
    assert len(files) == 1
    stamp = files[0].stat().st_mtime_ns
    again = load_dataset(str(photos), cache_dir=cache, memory_budget=100)
    assert torch.equal(direct.images, again.images)
    assert sorted(cache.rglob("*.npy"))[0].stat().st_mtime_ns == stamp


def test_erased_images_do_not_live_on_in_the_cache(photos, tmp_path):
    cache = tmp_path / "cache"
    secret = np.asarray(Image.open(photos / "train" / "dog" / "2.png")).transpose(2, 0, 1).tobytes()

    def cached() -> bytes:
        return b"".join(file.read_bytes() for file in cache.rglob("*.npy"))

    load_dataset(str(photos), cache_dir=cache, memory_budget=100)
    assert secret in cached()
    (photos / "train" / "dog" / "2.png").unlink()
    data = load_dataset(str(photos), cache_dir=cache, memory_budget=100)
    assert len(data) == 11
    assert cached()
    assert secret not in cached()
    load_dataset(str(photos), cache_dir=cache)
    assert not cached()


# .npz -------------------------------------------------------------------------------------------

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)


def test_npz(tmp_path):
    path = tmp_path / "mine.npz"
    labels = np.arange(6) % 3
    np.savez_compressed(path, x_train=IMAGES[..., 0], y_train=labels)
    data = load_dataset(str(path))
    assert (data.name, len(data), data.channels) == ("mine", 6, 1)
    np.savez(
        path,
        x_train=IMAGES,
        y_train=labels,
        x_test=IMAGES[:2],
        y_test=labels[:2],
        layout="NHWC",
        classes=np.array(["a", "b", "c"]),
        id_train=np.array([f"p{k}" for k in range(6)]),
    )
    data = load_dataset(str(path))
    assert torch.equal(data.images[:6], torch.from_numpy(IMAGES).permute(0, 3, 1, 2))
    assert data.ids == ("p0", "p1", "p2", "p3", "p4", "p5", "test/0", "test/1")
    assert data.classes == ("a", "b", "c")


class Boom:
    def __reduce__(self):
        return (pytest.fail, ("it was unpickled",))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_train": IMAGES}, "no array 'y_train'"),
        ({"x_train": IMAGES, "y_train": np.arange(6), "x_test": IMAGES}, "only one of x_test"),
        ({"x_trian": IMAGES}, "did you mean 'x_train'"),
        ({"x_train": IMAGES, "y_train": np.arange(5)}, "channels first or last|5 labels"),
        ({"x_train": IMAGES[..., 0], "y_train": np.arange(5)}, "6 images but 5 labels"),
        ({"x_train": np.array([Boom()]), "y_train": np.arange(1)}, "plain arrays"),
        (
            {"x_train": IMAGES[..., 0], "y_train": np.arange(6), "classes": np.arange(6)},
            "list of texts",
        ),
        (
            {"x_train": IMAGES[..., 0], "y_train": np.arange(6), "mean": "a", "std": 1},
            "mean = array.* is invalid: give numbers",
        ),
        ({"x_train": IMAGES[..., 0], "y_train": np.arange(6), "crop": [1]}, "single value"),
        (
            {"x_train": IMAGES[..., 0], "y_train": np.arange(6), "meta_train_user": np.arange(6)},
            "list of texts",
        ),
    ],
)
def test_bad_npz_is_refused(tmp_path, arrays, message):
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays)
    with pytest.raises(UserError, match=message):
        load_dataset(str(path))


def test_a_data_set_written_as_npz_is_read_again_whole(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (6, 3, 4, 3), dtype=np.uint8), np.arange(6) % 2
    data = Data(
        (images[:4], labels[:4]),
        (images[4:], labels[4:]),
        ids=["a", "b", "c", "d"],
        classes=["cat", "dog"],
        metadata={"user": [1, 2, 2, 3], "camera/lens": ["x", "", "y", "z"]},
        test_metadata={"user": [3, 4]},
        mean=[0.1, 0.2, 0.3],
        std=[0.4, 0.5, 0.6],
        augment={"crop": 1, "flip": True},
        layout="NHWC",
        name="mine",
    )
    np.savez(tmp_path / "mine.npz", **to_arrays(data))
    again = load_dataset(str(tmp_path / "mine.npz"))
    assert repr(again) == repr(data)
    assert torch.equal(again.images, data.images)
    assert torch.equal(again.labels, data.labels)
    for name in ("ids", "classes", "mean", "std", "augmentation", "metadata"):
        assert getattr(again, name) == getattr(data, name)
    np.savez(tmp_path / "train.npz", **to_arrays(data.take(torch.tensor([1, 0]))))
    assert load_dataset(str(tmp_path / "train.npz")).ids == ("b", "a")


def test_damaged_npz_is_named(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez_compressed(path, x_train=IMAGES[..., 0], y_train=np.arange(6))
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[120:140] = bytes(20)
    for content in (whole[:-30], b"", b"hello", bytes(damaged)):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"mine.npz' is truncated, corrupt"):
            load_dataset(str(path))
