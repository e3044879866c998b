"""`Split`: the parts of a data set, and the requests to forget."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qunlearn.data import manifest
from qunlearn.data.arrays import as_image_data
from qunlearn.data.choose import (
    FORGOTTEN,
    RETIRED,
    USABLE,
    check_share,
    class_number,
    draw_held_out,
    matching,
    resolve,
    sort_out,
    unusable,
)
from qunlearn.data.dataset import ImageData
from qunlearn.data.draw import shuffled
from qunlearn.data.manifest import Request
from qunlearn.data.manifest_key import ManifestKey
from qunlearn.errors import UserError

SKIPPED = "skipped"
"""Key in the detail of a request: the number of skipped ids, by what is wrong with them."""

DataLike = Any  # an ImageData, a torch Dataset, or a pair of arrays: see as_image_data


@dataclass(frozen=True)
class Outcome:
    """The outcome of a request.

    Attributes:
        forgotten: Number of samples to forget.
        retired: Number of samples retired from the held-out and the test part.
        skipped: Number of skipped ids, by what is wrong with them.
    """

    forgotten: int
    retired: Mapping[str, int]
    skipped: Mapping[str, int]


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """The parts of a data set, with every request to forget so far.

    Create one with `make` (nothing to forget), or with a first request by `random`, `of_class`,
    `of_ids` or `where`; each `forget_...` returns a new split with one more request. Parts are
    ascending indices into `data`. A request by ids or by a rule covers all of a person's samples:
    training samples are forgotten; held-out and test samples are retired, that is, removed from
    their part. Both may then be erased from the data; erased samples have no index.

    Attributes:
        data: The data set.
        seed: The seed that the held-out part was drawn with.
        requests: The requests to forget, in order.
        train: All samples that the original model was trained on.
        held_out: Samples never trained on, as examples of unseen data.
        test: The official test part.
        erased: Fingerprints of forgotten samples that are no longer in `data`, by id.
        retired: Fingerprints of retired samples, by part and id.
        key: The key of the fingerprints; without one, whoever has a picture can look for its hash.

    >>> from qunlearn.data import load_dataset
    >>> split = Split.random(load_dataset("digits"), fraction=0.1, seed=0)
    >>> {name: len(index) for name, index in split.parts().items()}
    {'retain': 1090, 'forget': 121, 'held_out': 136, 'test': 450}
    >>> split = split.forget_class(3)
    >>> list(split.parts())
    ['retain', 'forget', 'forget_1', 'held_out', 'test']
    """

    data: ImageData
    seed: int
    requests: tuple[Request, ...]
    train: Tensor
    held_out: Tensor
    test: Tensor
    erased: Mapping[str, str] = field(default_factory=dict)
    retired: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    key: ManifestKey | None = None

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} {len(index):,}" for name, index in self.parts().items())
        return f"Split({self.data.name}: {parts})"

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
        part = torch.where(data.is_test, _TEST, _TRAIN)
        if isinstance(held_out, (int, float, np.floating)):
            if trained_on is not None:
                raise UserError(
                    "The held-out samples of a model trained elsewhere cannot be drawn at random: "
                    "with trained_on=, give held_out= the ids of samples that it never saw "
                    "(--held-out FILE)."
                )
            unseen = draw_held_out(data, float(held_out), seed)
        else:
            unseen = resolve(data, held_out, "held_out")
        if trained_on is not None:
            seen = resolve(data, trained_on, "trained_on")
            part[part == _TRAIN] = _NONE
            part[seen] = _TRAIN
            both = unseen[part[unseen] == _TRAIN]
            if len(both):
                raise UserError(
                    f"The sample {data.ids[int(both[0])]!r} is listed both as trained on and as "
                    "held out; remove it from one of the two lists."
                )
        part[unseen] = _HELD_OUT
        train, held, test = ((part == p).nonzero().flatten() for p in (_TRAIN, _HELD_OUT, _TEST))
        if not len(train):
            raise UserError(f"No training sample of {data.name} is left; hold out fewer.")
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
        can speak of the sample's `class`.
        """
        rows = torch.cat([self.retain, self.held_out, self.test])
        return self._with_request(
            "where", {"rule": rule}, torch.tensor(matching(self.data, rule, rows))
        )

    def repeat(self, request: Request) -> Split:
        """Repeat a request of another split of the same samples."""
        rows = self.data.index_of((*request.ids, *request.retired))
        return self._with_request(request.kind, request.detail, rows)

    @property
    def last(self) -> Request | None:
        """The last request with samples to forget; other requests only retire samples."""
        return next((request for request in reversed(self.requests) if request.ids), None)

    @property
    def forget(self) -> Tensor:
        """The samples to forget in the last request that has any."""
        if self.last is None:
            raise UserError(
                "The split has no request to forget; add one, such as with Split.forget_random()."
            )
        return self._rows(self.last)

    @property
    def earlier(self) -> tuple[Tensor, ...]:
        """The samples to forget in each earlier request."""
        before = itertools.takewhile(lambda request: request is not self.last, self.requests)
        return tuple(self._rows(request) for request in before)

    @cached_property
    def forgotten(self) -> Tensor:
        """The samples to forget in all requests together."""
        rows = [self._rows(request) for request in self.requests]
        return torch.cat(rows).sort().values if rows else torch.empty(0, dtype=torch.int64)

    @cached_property
    def retain(self) -> Tensor:
        """The training samples that are not forgotten."""
        return self.train[~torch.isin(self.train, self.forgotten)]

    @property
    def whole_classes(self) -> bool:
        """Whether the last request is class-wise: nothing is retained of the classes it forgets."""
        if not len(self.forget):  # erased: only the kind of the request is known
            return self.last is not None and self.last.kind == "class"
        labels = self.data.labels
        return not bool(torch.isin(labels[self.forget], labels[self.retain]).any())

    def parts(self) -> dict[str, Tensor]:
        """The parts by name, disjoint from each other.

        With nothing to forget: train, held_out, test. Otherwise retain, forget (the last request),
        forget_1 and so on (the earlier ones), held_out, test.
        """
        rest = {"held_out": self.held_out, "test": self.test}
        if self.last is None:
            return {"train": self.train, **rest}
        before = {f"forget_{number}": rows for number, rows in enumerate(self.earlier, 1)}
        return {"retain": self.retain, "forget": self.forget, **before, **rest}

    def measured(self) -> dict[str, Tensor]:
        """The parts that a model is evaluated on: those of `parts` that have samples.

        A class of which nothing is retained leaves the held-out and the test part, because a model
        that forgot it must fail there. Its test samples form a separate part, `test_forgotten`.
        """
        parts = self.parts()
        labels = self.data.labels
        known = labels[self.retain]
        held_out, test = (torch.isin(labels[rows], known) for rows in (self.held_out, self.test))
        parts |= {"held_out": self.held_out[held_out], "test": self.test[test]}
        if self.last is not None:
            parts["test_forgotten"] = self.test[~test]
        return {name: rows for name, rows in parts.items() if len(rows)}

    def duplicates(self) -> dict[str, str]:
        """Forget samples that are also retained under another id: forget id to retained id.

        Duplicates have equal fingerprints: all pixels and the label. A model still knows them.
        """
        retain = zip(self.data.hashes(self.retain), self.retain.tolist(), strict=True)
        retained = {value: self.data.ids[row] for value, row in retain}
        forget = zip(self.forget.tolist(), self.data.hashes(self.forget), strict=True)
        return {self.data.ids[row]: retained[value] for row, value in forget if value in retained}

    def outcome(self) -> Outcome | None:
        """The outcome of the last request; None if it neither retired nor skipped samples."""
        request = self.requests[-1]
        skipped = request.detail.get(SKIPPED, {})
        if not skipped and not request.retired:
            return None
        retired = {
            part: sum(name in fingerprints for name in request.retired)
            for part, fingerprints in self.retired.items()
        }
        return Outcome(len(request.ids), retired, dict(skipped))

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
        # The value of a rule may name a person, and messages end up in logs.
        shown = {key: value for key, value in detail.items() if key not in (SKIPPED, "rule")}
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

    def _states(self) -> dict[str, str]:
        """The state of each sample, by id: usable, forgotten or retired."""
        states = {name: FORGOTTEN for request in self.requests for name in request.ids}
        states |= {name: RETIRED for request in self.requests for name in request.retired}
        used = torch.cat([self.retain, self.held_out, self.test]).tolist()
        return states | {self.data.ids[row]: USABLE for row in used}

    def _rows(self, request: Request) -> Tensor:
        return self.data.index_of(n for n in request.ids if n not in self.erased).sort().values

    def _fingerprints(self, rows: Tensor) -> dict[str, str]:
        names = (self.data.ids[row] for row in rows.tolist())
        marks = zip(names, self.data.hashes(rows), strict=True)
        return {name: manifest.sealed(self.key, name, mark) for name, mark in marks}


_NONE, _TRAIN, _HELD_OUT, _TEST = 0, 1, 2, 3
