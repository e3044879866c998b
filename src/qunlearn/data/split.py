"""`Split`: dividing a data set, asking to forget samples of it, and the manifest of both."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from qunlearn.data import manifest
from qunlearn.data.arrays import as_image_data
from qunlearn.data.choose import (
    check_share,
    class_number,
    matching,
    sort_out,
    unusable,
)
from qunlearn.data.divide import divide
from qunlearn.data.draw import shuffled
from qunlearn.data.manifest import Request
from qunlearn.data.manifest_key import ManifestKey
from qunlearn.data.parts import SKIPPED, Parts
from qunlearn.errors import UserError

DataLike = Any  # an ImageData, a torch Dataset, or a pair of arrays: see as_image_data


@dataclass(frozen=True, eq=False, repr=False)
class Split(Parts):
    """The parts of a data set, with every request to forget so far.

    Create one with `make` (nothing to forget), or with a first request by `random`, `of_class`,
    `of_ids` or `where`; each `forget_...` returns a new split with one more request. Parts are
    ascending indices into `data`. A request by ids or by a rule covers all of a person's samples:
    training samples are forgotten; held-out and test samples are retired, that is, removed from
    their part. Both may then be erased from the data; erased samples have no index.

    >>> from qunlearn.data import load_dataset
    >>> split = Split.random(load_dataset("digits"), fraction=0.1, seed=0)
    >>> {name: len(index) for name, index in split.parts().items()}
    {'retain': 1090, 'forget': 121, 'held_out': 136, 'test': 450}
    >>> split = split.forget_class(3)
    >>> list(split.parts())
    ['retain', 'forget', 'forget_1', 'held_out', 'test']
    """

    @classmethod
    def make(
        cls,
        dataset: DataLike,
        *,
        held_out: float | Sequence[str] = 0.1,
        trained_on: Sequence[str] | None = None,
        seed: int = 0,
    ) -> Split:
        """Divide a data set into training, held-out and test part.

        Args:
            dataset: An `ImageData`, a torch `Dataset`, or a pair of arrays (images, labels).
            held_out: The fraction of each class's training samples that is never trained on; or,
                for a model trained elsewhere, the ids of samples that it never saw. Test samples
                among them move from the test part to the held-out part.
            trained_on: The ids that a model trained elsewhere saw; other training samples then
                belong to no part. By default all training samples that are not held out.
            seed: Determines which samples are held out.

        >>> from qunlearn.data import load_dataset
        >>> split = Split.make(load_dataset("digits"), held_out=0.2)
        >>> len(split.train), len(split.held_out), len(split.test)
        (1078, 269, 450)
        """
        data = as_image_data(dataset)
        train, held, test = divide(data, held_out, trained_on, seed)
        return cls(data, seed, (), train, held, test)

    @classmethod
    def random(
        cls,
        dataset: DataLike,
        fraction: float = 0.1,
        *,
        seed: int = 0,
        held_out: float | Sequence[str] = 0.1,
    ) -> Split:
        """Forget a random fraction of the training samples."""
        return cls.make(dataset, held_out=held_out, seed=seed).forget_random(fraction)

    @classmethod
    def of_class(
        cls,
        dataset: DataLike,
        *classes: int | str,
        seed: int = 0,
        held_out: float | Sequence[str] = 0.1,
    ) -> Split:
        """Class-wise forgetting: forget all samples of classes, by number or name.

        >>> from qunlearn.data import load_dataset
        >>> split = Split.of_class(load_dataset("digits"), 3)
        >>> split.data.labels[split.forget].unique()
        tensor([3])
        """
        return cls.make(dataset, held_out=held_out, seed=seed).forget_class(*classes)

    @classmethod
    def of_ids(
        cls,
        dataset: DataLike,
        ids: Sequence[str],
        *,
        seed: int = 0,
        held_out: float | Sequence[str] = 0.1,
    ) -> Split:
        """Forget the samples with these ids."""
        return cls.make(dataset, held_out=held_out, seed=seed).forget_ids(ids)

    @classmethod
    def where(
        cls,
        dataset: DataLike,
        rule: str,
        *,
        seed: int = 0,
        held_out: float | Sequence[str] = 0.1,
    ) -> Split:
        """Forget the samples that a rule on their metadata names, such as `user == 42`."""
        return cls.make(dataset, held_out=held_out, seed=seed).forget_where(rule)

    def forget_random(self, fraction: float, seed: int | None = None) -> Split:
        """Ask to forget a random share of what is still retained."""
        seed = self.seed if seed is None else seed
        check_share(fraction, "forget")
        names = [self.data.ids[row] for row in self.retain.tolist()]
        # The number of the request is in the key, or a second draw with one seed would not be free.
        order = shuffled(names, "forget", seed, len(self.requests))
        count = round(fraction * len(names))
        if not count:
            raise UserError(
                f"The share {fraction:g} of {len(names)} samples is none: there is nothing to "
                f"forget; choose {1 / len(names):.2g} or more."
            )
        chosen = self.retain[order[:count]]
        return self._with_request(
            "random", {"fraction": float(fraction), "seed": int(seed)}, chosen
        )

    def forget_class(self, *classes: int | str) -> Split:
        """Ask to forget all that is still retained of these classes."""
        numbers = list(dict.fromkeys(class_number(self.data, name) for name in classes))
        retain = self.retain
        of_class = torch.isin(self.data.labels[retain], torch.tensor(numbers, dtype=torch.int64))
        names = [self.data.classes[number] for number in numbers]
        return self._with_request("class", {"classes": names}, retain[of_class])

    def forget_ids(self, ids: Sequence[str], *, skip_unusable: bool = False) -> Split:
        """Ask to forget these samples; those held out or of the test part are retired instead.

        Args:
            ids: The samples.
            skip_unusable: Leave out ids that are unknown, listed twice, or forgotten or retired
                already, and count them in the request; otherwise they are a `UserError`.
        """
        if self.data.aliases and not isinstance(ids, str):
            ids = [self.data.alias(name) for name in ids]
        usable, faults = sort_out(self.data, ids, self._states())
        if faults and not skip_unusable:
            raise unusable(self.data, faults, len(ids))
        counts = {kind: len(names) for kind, names in faults.items()}
        rows = self.data.index_of(usable)
        return self._with_request("ids", {SKIPPED: counts} if counts else {}, rows)

    def forget_where(self, rule: str) -> Split:
        """Ask to forget what is still retained and matches a rule; see `parse_rule`.

        Samples held out or of the test part that match are retired. Beside the metadata, the rule
        can speak of the sample's `class`. The manifest has the samples, and not the rule, whose
        value may name a person.
        """
        rows = torch.cat([self.retain, self.held_out, self.test])
        return self._with_request("where", {}, torch.tensor(matching(self.data, rule, rows)))

    def repeat(self, request: Request) -> Split:
        """Repeat a request of another split of the same samples."""
        rows = self.data.index_of((*request.ids, *request.retired))
        return self._with_request(request.kind, request.detail, rows)

    def to_json(self) -> str:
        """The manifest as JSON: ids and fingerprints of every part, and the requests."""
        return manifest.dump(
            manifest.Manifest(
                dataset=self.data.name,
                seed=self.seed,
                classes=self.data.classes,
                mean=self.data.mean,
                std=self.data.std,
                train={**self._fingerprints(self.train), **self.erased},
                held_out={
                    **self._fingerprints(self.held_out),
                    **self.retired.get("held_out", {}),
                },
                test={**self._fingerprints(self.test), **self.retired.get("test", {})},
                requests=self.requests,
                keyed="" if self.key is None else self.key.id,
            )
        )

    @classmethod
    def from_json(cls, text: str, data: DataLike, key: ManifestKey | None = None) -> Split:
        """Read a manifest and check it against the data, sample by sample.

        Samples that were forgotten or retired may be gone from the data; every other sample must
        be there unchanged. Class numbers and normalisation are taken from the manifest, so that the
        inputs of a model do not change when samples are erased. The hashes of a run's split are
        keyed: give `ManifestKey.read("runs/x")`.

        >>> from qunlearn.data import load_dataset
        >>> split = Split.random(load_dataset("digits"))
        >>> Split.from_json(split.to_json(), split.data).digest == split.digest
        True
        """
        saved = manifest.parse(text)
        data = as_image_data(data)
        aligned = manifest.align(saved, data)
        forgotten, retired_ids = saved.forgotten, saved.retired
        erased = {k: v for k, v in saved.train.items() if k in forgotten and k not in data}
        present = {k: v for k, v in saved.train.items() if k not in erased}
        unseen = {"held_out": saved.held_out, "test": saved.test}
        used = [{k: v for k, v in part.items() if k not in retired_ids} for part in unseen.values()]
        retired = {
            name: {k: v for k, v in part.items() if k in retired_ids}
            for name, part in unseen.items()
        }
        train, held_out, test = manifest.find(
            saved, aligned, present, *used, called=data.name, key=key
        )
        return cls(aligned, saved.seed, saved.requests, train, held_out, test, erased, retired, key)

    def with_key(self, key: ManifestKey | None) -> Split:
        """The same split, whose fingerprints are made with a key."""
        if key is None or self.key is not None:
            return dataclasses.replace(self, key=key)

        def keyed(marks: Mapping[str, str]) -> dict[str, str]:
            return {name: key.seal(name, mark) for name, mark in marks.items()}

        retired = {part: keyed(marks) for part, marks in self.retired.items()}
        return dataclasses.replace(self, key=key, erased=keyed(self.erased), retired=retired)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the manifest: equal digests mean equal splits."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def _with_request(self, kind: str, detail: Mapping[str, Any], rows: Tensor) -> Split:
        """A new split with a request for these samples: forgotten or retired, by their part."""
        shown = {key: value for key, value in detail.items() if key != SKIPPED}
        selection = ", ".join(f"{key} {value!r}" for key, value in shown.items())
        selection = selection or ("the rule" if kind == "where" else "the list of ids")
        if not len(rows):
            raise UserError(
                f"There is nothing to forget: {selection} matches no sample that is in use and "
                "neither forgotten nor retired; select others."
            )
        trained = rows[torch.isin(rows, self.train)]
        if len(trained) == len(self.retain):
            raise UserError(
                f"Nothing would be retained: {selection} covers all {len(trained)} remaining "
                "training samples; select fewer, or train a new model."
            )
        parts = {"held_out": self.held_out, "test": self.test}
        left = {name: part[~torch.isin(part, rows)] for name, part in parts.items()}
        for name, part in parts.items():
            if len(part) and not len(left[name]):
                raise UserError(
                    f"Nothing would be left to evaluate on: {selection} covers all {len(part)} "
                    f"samples of the {name.replace('_', '-')} part; train or adopt a network with "
                    "a larger one."
                )
        gone = {name: part[torch.isin(part, rows)] for name, part in parts.items()}
        retired = {
            name: {**self.retired.get(name, {}), **self._fingerprints(part)}
            for name, part in gone.items()
        }
        ids, names = (
            tuple(sorted(self.data.ids[row] for row in part.tolist()))
            for part in (trained, torch.cat(list(gone.values())))
        )
        return dataclasses.replace(
            self,
            requests=(*self.requests, Request(kind, detail, ids, names)),
            held_out=left["held_out"],
            test=left["test"],
            retired=retired,
        )
