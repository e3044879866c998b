"""Sets beyond memory: what is streamed from the cache is what would be in memory, byte by byte."""

from __future__ import annotations

import pickle
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import qunlearn as qu
from qunlearn.data import ImageData, Loader
from qunlearn.data.mapped import file_of
from qunlearn.errors import UserError
from qunlearn.evidence.plan import _cache_steps
from qunlearn.store.run import Run

RNG = np.random.default_rng(1)
BYTES = RNG.integers(0, 256, (300, 6, 5, 3), dtype=np.uint8)
LABELS = RNG.integers(0, 3, 300)
AUGMENT = {"crop": 1, "flip": True}


class Pictures(torch.utils.data.Dataset[Any]):
    """A torch Dataset that counts how often it is read."""

    def __init__(self, images: np.ndarray[Any, Any]):
        self.images, self.reads = images, 0

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        self.reads += 1
        return torch.from_numpy(self.images[row]), int(LABELS[row])


def kinds() -> dict[str, Any]:
    """Training parts in every form that is converted: datasets, arrays, mapped arrays, floats."""
    return {
        "dataset": lambda: Pictures(BYTES),
        "arrays": lambda: (BYTES, LABELS),
        "floats": lambda: (BYTES.astype(np.float64) / 7, LABELS),
    }


@pytest.fixture(scope="module", params=kinds())
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same set in memory and mapped."""
    cache = tmp_path_factory.mktemp("cache")
    part, test = kinds()[request.param], (BYTES[:9], LABELS[:9])
    if request.param == "floats":
        test = (test[0].astype(np.float32), test[1])
    options: dict[str, Any] = {"test": test, "augment": AUGMENT, "name": "set"}
    inside = qu.Data(part(), **options)
    mapped = qu.Data(part(), **options, memory_budget=0, cache_dir=cache)
    return inside, mapped


def test_the_copy_is_the_same_set(both: tuple[ImageData, ImageData]) -> None:
    inside, mapped = both
    assert file_of(inside.images) is None
    file = file_of(mapped.images)
    assert file is not None
    assert torch.equal(inside.images, mapped.images)
    assert inside.images.dtype == mapped.images.dtype
    assert torch.equal(inside.labels, mapped.labels)
    assert (inside.ids, inside.mean, inside.std) == (mapped.ids, mapped.mean, mapped.std)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.integers(0, 308), min_size=1, max_size=80),
    batch_size=st.integers(1, 90),
    seed=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 3),
    shuffle=st.booleans(),
    augment=st.booleans(),
    world=st.integers(1, 3),
)
def test_batches_are_the_same_for_any_size_and_order(
    both: tuple[ImageData, ImageData],
    rows: list[int],
    batch_size: int,
    seed: int,
    epoch: int,
    shuffle: bool,
    augment: bool,
    world: int,
) -> None:
    index = torch.tensor(rows)
    steps = -(-len(rows) // batch_size)
    world = world if len(rows) // steps >= world else 1
    options: dict[str, Any] = {"seed": seed, "shuffle": shuffle, "augment": augment}
    for rank in range(world):
        pair = [Loader(data, index, batch_size, **options, rank=rank, world=world) for data in both]
        for one, two in zip(*(loader.epoch(epoch) for loader in pair), strict=True):
            assert one.images.numpy().tobytes() == two.images.numpy().tobytes()
            assert torch.equal(one.labels, two.labels)
            assert torch.equal(one.index, two.index)


def test_other_processes_get_the_name_of_the_file(both: tuple[ImageData, ImageData]) -> None:
    _, mapped = both
    sent = pickle.dumps(mapped)
    assert len(sent) < mapped.images.nbytes
    assert torch.equal(pickle.loads(sent).images, mapped.images)


def test_a_copy_is_written_once_and_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    images = BYTES.copy()

    def convert() -> tuple[int, ImageData]:
        options: dict[str, Any] = {"memory_budget": 0, "cache_dir": tmp_path, "name": "set"}
        data = qu.Data(Pictures(images), **options)
        (file,) = tmp_path.rglob("*.npy")
        return file.stat().st_mtime_ns, data

    first, _ = convert()
    assert convert()[0] == first
    images[101, 3, 3, 1] ^= 1  # none of the samples that the name depends on
    later, data = convert()
    assert later != first
    assert np.array_equal(data.images.numpy(), np.moveaxis(images, 3, 1))


def test_a_sample_that_differs_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    class Odd(Pictures):
        def __getitem__(self, row: int) -> tuple[Tensor, int]:
            image, label = super().__getitem__(row)
            return (image[:2] if row == 277 else image), label

    with pytest.raises(UserError, match="Sample 277 of the training part"):
        qu.Data(Odd(BYTES), memory_budget=0, cache_dir=tmp_path)
    assert not list(tmp_path.rglob("*.npy"))


def test_erasing_names_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = qu.Data((BYTES, LABELS), name="people", memory_budget=0)
    split = qu.Split.make(data)
    model = qu.ModelSpec("cnn", classes=3, channels=3, size=5).build()
    model = qu.train(model, split, epochs=1)
    qu.save(model, split, tmp_path / "run", data=True)
    (step,) = _cache_steps([Run.open(tmp_path / "run")], None)
    assert step.action == "cache"
    file = file_of(data.images)
    assert file is not None
    assert step.path == str(file.path.parent.resolve() / "arrays-people")
