from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from qunlearn.data import Augmentation, Data, Loader, Split, as_image_data
from qunlearn.errors import UserError

LABELS = np.array([0, 1, 2, 1])
BYTES = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)


def test_layouts():
    truth = torch.from_numpy(BYTES).permute(0, 3, 1, 2)
    assert torch.equal(as_image_data((BYTES, LABELS)).images, truth)
    assert torch.equal(as_image_data((truth, LABELS)).images, truth)
    assert as_image_data((BYTES[..., 0], LABELS)).images.shape == (4, 1, 5, 6)
    odd = BYTES[:, :3]
    with pytest.raises(UserError, match=r"layout='NCHW' or layout='NHWC'"):
        as_image_data((odd, LABELS))
    assert as_image_data((odd, LABELS), layout="NCHW").images.shape == (4, 3, 6, 3)
    assert as_image_data((odd, LABELS), layout="NHWC").images.shape == (4, 3, 3, 6)
    with pytest.raises(UserError, match="first or last"):
        as_image_data((np.zeros((4, 2, 5, 6), dtype=np.uint8), LABELS))
    with pytest.raises(UserError, match="not laid out as NHW"):
        as_image_data((BYTES, LABELS), layout="NHW")
    with pytest.raises(UserError, match="'CHWN' is unknown"):
        as_image_data((BYTES, LABELS), layout="CHWN")


def test_bytes_are_normalised_by_their_own_mean_and_floats_are_seen_as_they_are():
    data = as_image_data((BYTES, LABELS))
    assert data.images.dtype == torch.uint8
    assert data.mean == pytest.approx((BYTES / 255).mean(axis=(0, 1, 2)))
    assert data.std == pytest.approx((BYTES / 255).std(axis=(0, 1, 2)))
    assert "; mean 0.4922 0.4899 0.4961, std 0.2779 0.2856 0.2998; not augmented)" in repr(data)
    floats = as_image_data((BYTES.astype(np.float64) * 3 - 7, LABELS))
    assert floats.images.dtype == torch.float32
    assert torch.equal(floats.normalise(floats.images), floats.images)
    assert repr(floats).endswith("3 classes; not normalised; not augmented)")
    flat = as_image_data((np.full((4, 5, 6), 9, dtype=np.uint8), LABELS))
    assert flat.std == (1.0,)


def test_normalisation_that_is_given_is_what_the_network_sees():
    mean, std = [0.5, 0.4, 0.3], (0.25, 0.5, 1.0)
    truth = (BYTES / 255 - np.array(mean)) / np.array(std)
    for given in (BYTES, BYTES / 255):
        data = Data((given, LABELS), mean=mean, std=std)
        seen = data.normalise(data.images).permute(0, 2, 3, 1).numpy()
        assert np.abs(seen - truth).max() < 1e-5
    assert Data((BYTES, LABELS), mean=0.5, std=np.float32(0.25)).mean == (0.5,) * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean": 0.5}, "Only one of mean= and std="),
        ({"mean": [0.5, 0.5], "std": [1, 1]}, "mean= has 2 numbers for 3 channels"),
        ({"mean": 0.5, "std": 0}, "std = 0 is invalid: give numbers above zero"),
        ({"mean": np.nan, "std": 1}, "mean = nan is invalid: give finite numbers"),
        ({"mean": 127.5, "std": 0.5}, "divide it by 255"),
        ({"augment": True}, "augment = True is invalid"),
        ({"augment": {"crops": 1}}, "did you mean 'crop'"),
        ({"augment": {"crop": 5}}, "crop is a number of pixels from 0 to 4"),
        ({"augment": {"crop": 1.5}}, "crop = 1.5"),
        ({"augment": {"flip": 1}}, "flip = 1 is invalid"),
        ({"test_ids": ["a"]}, "test_ids= needs a test part"),
        ({"metadata": {"user": [1, 2]}}, "2 entries in 'user' for 4 samples of the train part"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(UserError, match=message):
        Data((BYTES, LABELS), **options)


def test_training_images_are_augmented_if_that_is_asked_for():
    plain, flipped = (
        Data((BYTES, LABELS), mean=0.0, std=1.0, augment=augment)
        for augment in (None, {"flip": True})
    )
    truth, mirrored = plain.normalise(plain.images), 0
    for epoch in range(4):
        loaders = (Loader(data, torch.arange(4), 4, shuffle=False) for data in (plain, flipped))
        unchanged, augmented = (loader.batch(epoch, 0).images for loader in loaders)
        assert torch.equal(unchanged, truth)
        for image, original in zip(augmented, truth, strict=True):
            turned = not torch.equal(image, original)
            mirrored += turned
            assert torch.equal(image, original.flip(-1) if turned else original)
    assert 0 < mirrored < 16
    assert Data((BYTES, LABELS), augment=Augmentation(crop=2)).augmentation == Augmentation(crop=2)


def test_metadata_choose_what_is_to_be_forgotten():
    data = Data(
        (BYTES, LABELS),
        (BYTES, LABELS),
        ids=[11, 12, 13, 14],
        metadata={"user": np.array([42, 42, 7, 8]), "when": ["2024-05-01", None, "", float("nan")]},
        test_metadata={"user": torch.tensor([42, 1, 2, 3])},
    )
    assert data.metadata["user"] == ("42", "42", "7", "8", "42", "1", "2", "3")
    assert data.metadata["when"] == ("2024-05-01", *[""] * 7)
    everything = Split.make(data, held_out=["test/3"], trained_on=["11", "12", "13", "14"])
    split = everything.forget_where("user == 42")
    assert [data.ids[row] for row in split.forget] == ["11", "12"]


def test_lists_of_whatever_holds_an_image():
    truth = torch.from_numpy(BYTES).permute(0, 3, 1, 2)
    for listed in (list(BYTES), [torch.from_numpy(x) for x in BYTES], map_to_pil(BYTES)):
        assert torch.equal(Data((listed, LABELS.tolist())).images, truth)
        pairs = list(zip(listed, LABELS.tolist(), strict=True))
        assert torch.equal(Data(pairs).images, truth)
    assert torch.equal(Data(((BYTES / 255).tolist(), LABELS)).images, truth / 255)
    with pytest.raises(UserError, match="not of one shape"):
        Data(([BYTES[0], BYTES[1][:4]], [0, 1]))


def map_to_pil(images):
    return [Image.fromarray(image) for image in images]


def test_test_part_ids_and_names():
    data = as_image_data(
        (BYTES, LABELS), test=(BYTES[:2], LABELS[:2]), name="mine", classes=["a", "b", "c"]
    )
    assert data.ids == ("train/0", "train/1", "train/2", "train/3", "test/0", "test/1")
    assert data.is_test.tolist() == [False] * 4 + [True] * 2
    assert (data.name, data.classes) == ("mine", ("a", "b", "c"))
    assert data.mean == as_image_data((BYTES, LABELS)).mean  # of the training part alone
    own = as_image_data((BYTES, LABELS), ids=["w", "x", "y", "z"])
    assert own.ids == ("w", "x", "y", "z")
    assert as_image_data((BYTES, LABELS[:, None])).labels.tolist() == LABELS.tolist()
    assert as_image_data(data) is data


class Pictures(Dataset):
    classes = ("a", "b", "c")

    def __init__(self, images, labels, transform=lambda image: image):
        self.images, self.labels, self.transform = images, labels, transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, k):
        return self.transform(self.images[k]), self.labels[k]


@pytest.mark.parametrize("transform", [Image.fromarray, lambda x: x, torch.from_numpy])
def test_torch_data_sets(transform):
    data = as_image_data(Pictures(BYTES, LABELS, transform))
    assert torch.equal(data.images, torch.from_numpy(BYTES).permute(0, 3, 1, 2))
    assert data.labels.tolist() == LABELS.tolist()
    assert data.classes == ("a", "b", "c")
    assert data.name == "Pictures"


def test_tensor_data_sets_and_splits_of_them():
    floats = torch.rand(20, 3, 8, 8)
    split = Split.random(TensorDataset(floats, torch.arange(20) % 2), 0.25)
    assert torch.equal(split.data.images, floats)
    assert len(split.forget) == round(0.25 * 18)


def test_images_of_other_sizes_and_random_transforms_are_refused():
    mixed = Pictures([BYTES[0], BYTES[1][:4]], [0, 1])
    with pytest.raises(UserError, match="Sample 1 of the training part is"):
        as_image_data(mixed)
    noise = np.random.default_rng(1)
    noisy = Pictures(BYTES, LABELS, lambda image: image + noise.integers(2, size=image.shape))
    with pytest.raises(UserError, match="differs each time"):
        as_image_data(noisy)


class Stream(IterableDataset):
    def __iter__(self):
        return iter([])


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ((BYTES, LABELS[:3]), "4 images but 3 labels"),
        ((BYTES[:0], LABELS[:0]), "no samples"),
        (Pictures([], []), "no samples"),
        ((BYTES, LABELS.astype(float)), "labels of the training part are float64"),
        ((BYTES, LABELS - 1), "label -1 of sample 0"),
        ((BYTES, LABELS * 10**9), "label 1000000000 of sample 1"),
        ((BYTES, np.eye(4, dtype=int)), "one integer per image"),
        ((BYTES, LABELS > 0), "labels of the training part are bool"),
        ((BYTES.astype(np.int32), LABELS), "int32; convert them to uint8"),
        ((np.array([["a"]]), LABELS), "array of <U1"),
        ((BYTES[:, 0, 0], LABELS), "not N×H×W"),
        ((BYTES,), "tuple of length 1"),
        (Stream(), "no random access"),
        (17, "An object of type int was given"),
        (Pictures(BYTES, [0, 1, -3, 1]), "label -3 of sample 2"),
        (Pictures(BYTES, [[0, 1]] * 4), "not a single number"),
        ([1, 2, 3], "not a pair"),
        (Pictures([Image.new("I;16", (4, 4))] * 2, [0, 1]), "mode 'I;16'"),
        ((np.zeros((4, 0, 6, 3), dtype=np.uint8), LABELS), "not laid out"),
    ],
)
def test_bad_sets_are_refused(dataset, message):
    with pytest.raises(UserError, match=message):
        as_image_data(dataset)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_pixels_that_are_no_numbers_are_named(value):
    floats = BYTES.astype(np.float64)
    floats[2, 0, 0, 0] = value
    with pytest.raises(UserError, match="Image 2 of the training part"):
        as_image_data((floats, LABELS))


def test_other_mismatches_are_refused():
    with pytest.raises(UserError, match="convert them to one shape and type"):
        as_image_data((BYTES, LABELS), test=(BYTES[:, :, :5], LABELS))
    with pytest.raises(UserError, match="2 class names, but the label 2"):
        as_image_data((BYTES, LABELS), classes=["a", "b"])
    with pytest.raises(UserError, match="1 ids for 4 samples"):
        as_image_data((BYTES, LABELS), ids=["a"])
    with pytest.raises(UserError, match="test= applies to arrays"):
        as_image_data(as_image_data((BYTES, LABELS)), test=(BYTES, LABELS))


def test_more_than_the_disk_has_is_refused(tmp_path):
    class Huge(Pictures):
        def __len__(self):
            return 10**15

    with pytest.raises(UserError, match=r"need [\d,]+ bytes in .* are free; free some space"):
        as_image_data(Huge(BYTES, LABELS), cache_dir=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
