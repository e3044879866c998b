"""`ImageData`: images as one tensor, with labels, stable ids and metadata."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qunlearn.characters import check_names
from qunlearn.data.draw import shuffled
from qunlearn.data.mapped import MappedFile, file_of
from qunlearn.data.metadata import read_metadata
from qunlearn.errors import UserError, others


@dataclass(frozen=True)
class Augmentation:
    """Random augmentation of training images.

    Attributes:
        crop: Pixels of zero padding on each side, before a random crop to the original size.
        flip: Whether to flip horizontally with probability 0.5.
    """

    crop: int = 0
    flip: bool = False

    def __str__(self) -> str:
        crop, flip = f"crop {self.crop}" if self.crop else "", "flip" if self.flip else ""
        return ", ".join(filter(None, (crop, flip))) or "not augmented"


@dataclass(frozen=True, eq=False, repr=False)
class ImageData:
    """A labelled set of images, the official test part included.

    Parts of a split are index tensors into it. The tensors are never modified.

    Attributes:
        name: Name of the data set in manifests and reports.
        images: N×C×H×W, uint8 or float32; in memory or mapped from disk.
        labels: N class numbers, int64.
        ids: A stable, unique id per sample, such as "train/42".
        is_test: N booleans: whether a sample belongs to the official test part.
        classes: The class names, indexed by label.
        mean: Per channel, for normalisation; for uint8 images in units of [0, 1].
        std: Per channel, in the same units.
        augmentation: The recommended augmentation for training.
        metadata: Further columns of text, each aligned with `ids`.
        source: The arguments of `load_dataset`, so that a saved run can name its data; empty for
            data made in Python.
        left_out: The ids of training samples that a subset leaves out.
        aliases: The pseudonym of each original id, if the ids are pseudonyms.

    >>> data = ImageData("two", torch.zeros(2, 1, 4, 4), torch.tensor([0, 1]),
    ...                  ("train/0", "test/0"), torch.tensor([False, True]), ("cat", "dog"),
    ...                  mean=(0.0,), std=(1.0,))
    >>> len(data), data.num_classes, data.channels, data.image_size
    (2, 2, 1, (4, 4))
    >>> data.index_of(["test/0"])
    tensor([1])
    """

    name: str
    images: Tensor
    labels: Tensor
    ids: tuple[str, ...]
    is_test: Tensor
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: Augmentation = Augmentation()
    metadata: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = len(self.ids)
        if self.images.ndim != 4 or self.images.dtype not in (torch.uint8, torch.float32):
            raise UserError(
                f"Images must be N×C×H×W of uint8 or float32, not {tuple(self.images.shape)} of "
                f"{self.images.dtype}; as_image_data() converts other kinds."
            )
        columns = {"images": len(self.images), "labels": len(self.labels)}
        columns |= {"is_test": len(self.is_test)}
        columns |= {f"the column {name!r}": len(cells) for name, cells in self.metadata.items()}
        for name, length in columns.items():
            if length != count:
                raise UserError(
                    f"There are {count} ids but {length} entries in {name}; give one for each."
                )
        for name, moments in {"mean": self.mean, "std": self.std}.items():
            if len(moments) != self.channels:
                raise UserError(
                    f"{name} = {moments} does not match the {self.channels} channels; give as many."
                )
        if min(self.std) <= 0:
            raise UserError(f"The std {self.std} must be positive in every channel.")
        check_names([self.name], "data set's name", "rename it")
        check_names(self.ids, "id", "rename the sample")
        check_names(self.classes, "class name", "rename the class")
        check_names(list(self.metadata), "column name", "rename the column")
        for cells in self.metadata.values():
            check_names(cells, "cell", "correct the metadata", lines=True)
        if len(self._positions) != count:
            raise UserError(f"The id {first_repeated(self.ids)!r} occurs twice; ids are unique.")
        if len(set(self.classes)) != len(self.classes):
            twice = first_repeated(self.classes)
            raise UserError(f"The class name {twice!r} occurs twice; names are unique.")
        if count and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < self.num_classes:
            raise UserError(f"The labels must lie in 0..{self.num_classes - 1}.")

    def __getstate__(self) -> dict[str, object]:
        """Mapped images are sent to other processes as the name of their file."""
        file = file_of(self.images)
        return vars(self) if file is None else {**vars(self), "images": file}

    def __setstate__(self, state: dict[str, object]) -> None:
        file = state["images"]
        vars(self).update(state | ({"images": file.open()} if isinstance(file, MappedFile) else {}))

    def __repr__(self) -> str:
        shape, tests = "×".join(map(str, self.images.shape[1:])), int(self.is_test.sum())
        seen = f"mean {_numbers(self.mean)}, std {_numbers(self.std)}"
        plain = not any(self.mean) and set(self.std) == {1.0}
        return (
            f"ImageData({self.name}: {len(self):,} images of {shape} ({tests or 'no'} test), "
            f"{self.num_classes} classes; {'not normalised' if plain else seen}; "
            f"{self.augmentation})"
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @property
    def channels(self) -> int:
        """Number of channels of an image."""
        return self.images.shape[1]

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.images.shape[2], self.images.shape[3]

    def index_of(self, ids: Iterable[str]) -> Tensor:
        """The indices of the samples with these ids; an unknown id is a `UserError`."""
        rows = [(name, self._positions.get(self.alias(name), -1)) for name in ids]
        missing = [name for name, row in rows if row < 0]
        if missing:
            raise self._no_such(missing)
        return torch.tensor([row for _, row in rows], dtype=torch.int64)

    def pseudonymised(self, alias: Callable[[str], str]) -> ImageData:
        """The same samples with pseudonyms for ids; the original ids are still understood."""
        names = tuple(alias(name) for name in self.ids)
        known = dict(zip(self.ids, names, strict=True))
        return dataclasses.replace(self, ids=names, aliases=known)

    def alias(self, name: str) -> str:
        """The id of a sample here, which may be a pseudonym."""
        return self.aliases.get(name, name)

    def __contains__(self, id: object) -> bool:
        return id in self._positions

    def subset(self, n: int, seed: int = 0) -> ImageData:
        """Select n training samples, equally many of each class, and the complete test part.

        A class with too few samples contributes all of them, and the others make up the rest. The
        samples are copied into memory.

        Args:
            n: Number of training samples.
            seed: Determines which samples are drawn.
        """
        subset = self.take(subset_rows(self.name, self.labels, self.ids, self.is_test, n, seed))
        return dataclasses.replace(subset, left_out=self.left_out | {*self.ids} - {*subset.ids})

    def take(self, index: Tensor) -> ImageData:
        """Select samples by index, in this order, copied into memory."""
        rows = index.tolist()
        return dataclasses.replace(
            self,
            images=self.images.index_select(0, index),
            labels=self.labels[index],
            ids=tuple(self.ids[row] for row in rows),
            is_test=self.is_test[index],
            metadata={k: tuple(cells[row] for row in rows) for k, cells in self.metadata.items()},
            source={},
        )

    def join(
        self, csv_path: Path | str, erased: Container[str] = (), unnamed: int = 0
    ) -> ImageData:
        """Add the columns of a CSV file, matched by its column `id`.

        Samples without a row have empty cells. The file may still list samples that were `erased`,
        and so many whose ids are no longer known; any other unknown id is a `UserError`.
        """
        columns, rows = read_metadata(Path(csv_path))
        for column in columns:
            if column in self.metadata:
                raise UserError(
                    f"{self.name} has a metadata column {column!r} already; rename the one in "
                    f"{str(csv_path)!r}."
                )
        known = [name for name in rows if name not in erased and name not in self.left_out]
        if sum(self.alias(name) not in self for name in known) > unnamed:
            self.index_of(known)  # raises for an unknown id
        blank = ("",) * len(columns)
        cells = [rows.get(name, blank) for name in self.ids]
        joined = {column: tuple(row[k] for row in cells) for k, column in enumerate(columns)}
        return dataclasses.replace(self, metadata={**self.metadata, **joined}, source={})

    def hashes(self, indices: Tensor | Sequence[int]) -> list[str]:
        """A fingerprint of each sample: shape, type, pixels and label, as 32 hex digits."""
        rows = indices.tolist() if isinstance(indices, Tensor) else list(indices)
        pixels, labels, known = self.images.numpy(), self.labels.tolist(), self._fingerprints
        head = f"{pixels.dtype}{pixels.shape[1:]}"
        for row in rows:
            if row not in known:
                digest = hashlib.blake2b(f"{head}{labels[row]}|".encode(), digest_size=16)
                digest.update(pixels[row].tobytes())
                known[row] = digest.hexdigest()
        return [known[row] for row in rows]

    def normalise(self, images: Tensor) -> Tensor:
        """Normalise images of this set for the network: float32, mean 0 and std 1 per channel."""
        scale, shift = self.affine
        # In place on a copy, because `to` alone returns float images themselves.
        return images.to(torch.float32, copy=True).mul_(scale).add_(shift)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.ids)}

    @cached_property
    def _fingerprints(self) -> dict[int, str]:
        return {}

    @cached_property
    def affine(self) -> tuple[Tensor, Tensor]:
        """Scale and shift of each channel that normalise the stored images."""
        mean, std = (torch.tensor(moment).view(-1, 1, 1) for moment in (self.mean, self.std))
        unit = 255.0 if self.images.dtype == torch.uint8 else 1.0
        return 1 / (std * unit), -mean / std

    def hint(self, name: str) -> str:
        """A suggestion for an unknown id."""
        # Only the prefix is guessed: never suggest another sample's id in a request to forget.
        guesses = [f"train/{name}", f"test/{name}"]
        near = [guess for guess in guesses if guess in self._positions]
        return f"did you mean {near[0]!r}?" if near else _example(self.ids)

    def _no_such(self, names: Sequence[str]) -> UserError:
        further = f", nor {others(names)}" if len(names) > 1 else ""
        hint = self.hint(names[0])
        return UserError(f"There is no sample {names[0]!r} in {self.name}{further}: {hint}")


def subset_rows(
    name: str, labels: Tensor, ids: Sequence[str], is_test: Tensor, n: int, seed: int
) -> Tensor:
    """The indices of a subset, in ascending order; see `ImageData.subset`."""
    train = (~is_test).nonzero().flatten().tolist()
    groups = by_class(train, labels)
    if not len(groups) <= n <= len(train):
        raise UserError(
            f"A subset of {n} samples cannot be drawn from {name}: choose a number from "
            f"{len(groups)} (one per class) to {len(train)} (all training samples)."
        )
    sizes = _fill(n, [len(group) for group in groups.values()])
    rows = is_test.nonzero().flatten().tolist()
    for (label, group), size in zip(groups.items(), sizes, strict=True):
        order = shuffled([ids[index] for index in group], "subset", seed, label)
        rows += [group[position] for position in order[:size]]
    return torch.tensor(sorted(rows))


def first_repeated(names: Iterable[str]) -> str | None:
    """The first name that occurs a second time, or None.

    >>> first_repeated(["a", "b", "a"])
    'a'
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _numbers(values: Sequence[float]) -> str:
    """One number if all channels agree, otherwise one per channel.

    >>> _numbers((0.5, 0.5)), _numbers((0.5, 0.25))
    ('0.5', '0.5 0.25')
    """
    return " ".join(f"{value:.4g}" for value in (values[:1] if len(set(values)) == 1 else values))


def _example(ids: Sequence[str]) -> str:
    trained = [name for name in ids if not name.startswith("test/")]
    shown = next(iter([*trained[:1], *ids[:1]]), None)
    return "the set is empty." if shown is None else f"ids look like {shown!r}; check the list."


def by_class(rows: Iterable[int], labels: Tensor) -> dict[int, list[int]]:
    """The rows of each class that occurs, by ascending label."""
    groups: dict[int, list[int]] = {}
    numbers = labels.tolist()
    for row in rows:
        groups.setdefault(numbers[row], []).append(row)
    return dict(sorted(groups.items()))


def _fill(total: int, room: list[int]) -> list[int]:
    """Divide `total` as equally as the room in each group allows."""
    sizes = [0] * len(room)
    # The smallest group first: the later ones share what it cannot take.
    by_room = sorted(range(len(room)), key=lambda group: (room[group], group))
    for done, group in enumerate(by_room):
        sizes[group] = min(room[group], (total - sum(sizes)) // (len(room) - done))
    return sizes
