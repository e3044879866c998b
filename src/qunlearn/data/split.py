"""Which sample belongs to which part, and what is to be forgotten."""

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
    check_share,
    class_number,
    draw_held_out,
    listed,
    matching,
    resolve,
)
from qunlearn.data.dataset import ImageData
from qunlearn.data.draw import shuffled
from qunlearn.data.manifest import Request
from qunlearn.errors import UserError, others

SHOWN = 5
"""How many duplicates are named."""

ELSEWHERE = "never trained on"
"""What a request by a rule says of samples that it fits, too."""

DataLike = Any  # an ImageData, a torch Dataset, or a pair of arrays: see as_image_data


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """The parts of a data set, with every request to forget so far.

    Made by `make` (nothing to forget yet) or at once by `random`, `of_class`, `of_ids` or `where`;
    each `forget_...` gives a new split with one more request. Parts are ascending indices into
    `data`. A sample that was erased after it was forgotten has no index any more.

    Attributes:
        data: The data set.
        seed: What the held-out part was drawn with.
        requests: What was asked to be forgotten, in order.
        train: Everything that the original was trained on.
        held_out: Never trained on; shows what unseen data looks like.
        test: The official test part.
        erased: Fingerprints of forgotten samples that are no longer in `data`, by id.

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
            held_out: The share of each class's training samples that is never trained on; or, for a
                model that was trained elsewhere, the ids of samples that it truly never saw. Those
                that come from the test part leave it.
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
                    "What a model trained elsewhere never saw cannot be drawn by share: give "
                    "held_out= the ids of such samples beside trained_on= (--held-out FILE)."
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
                    f"The sample {data.ids[int(both[0])]!r} is named both as trained on and as "
                    "held out; take it from one of the two lists."
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
        """Forget a random share of the training samples."""
        return cls.make(dataset, held_out=held_out, seed=seed).forget_random(fraction)

    @classmethod
    def of_class(
        cls,
        dataset: DataLike,
        *classes: int | str,
        seed: int = 0,
        held_out: float | Sequence[str] = 0.1,
    ) -> Split:
        """Forget whole classes, given by number or name.

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
        chosen = [names[position] for position in order[:count]]
        return self._asked("random", {"fraction": float(fraction), "seed": int(seed)}, chosen)

    def forget_class(self, *classes: int | str) -> Split:
        """Ask to forget all that is still retained of these classes."""
        numbers = list(dict.fromkeys(class_number(self.data, name) for name in classes))
        retain = self.retain
        of_class = torch.isin(self.data.labels[retain], torch.tensor(numbers, dtype=torch.int64))
        names = [self.data.classes[number] for number in numbers]
        chosen = [self.data.ids[row] for row in retain[of_class].tolist()]
        return self._asked("class", {"classes": names}, chosen)

    def forget_ids(self, ids: Sequence[str]) -> Split:
        """Ask to forget these samples; each must have been trained on and not be forgotten yet."""
        before = {name: at for at, request in enumerate(self.requests, 1) for name in request.ids}
        gone = [name for name in listed(ids, "ids") if name in before]
        if gone:
            raise UserError(
                f"The sample {gone[0]!r} was already forgotten by request {before[gone[0]]}"
                + (f", as were {others(gone)}" if gone[1:] else "")
                + f"; take {'them' if gone[1:] else 'it'} from the list."
            )
        trained = torch.isin(resolve(self.data, ids, "ids"), self.train).tolist()
        unseen = [name for name, seen in zip(ids, trained, strict=True) if not seen]
        if unseen:
            raise UserError(
                f"The sample {unseen[0]!r} was never trained on ({self._part_of(unseen[0])})"
                + (f", nor were {others(unseen)}, so they" if unseen[1:] else ", so it")
                + f" cannot be forgotten; take {'them' if unseen[1:] else 'it'} from the list."
            )
        return self._asked("ids", {}, list(ids))

    def forget_where(self, rule: str) -> Split:
        """Ask to forget what is still retained and matches a rule; see `parse_rule`.

        Beside the metadata, the rule can speak of the sample's `class`.
        """
        chosen = [self.data.ids[row] for row in matching(self.data, rule, self.retain)]
        parts = {"held out": self.held_out, "test": self.test}
        counts = {name: len(matching(self.data, rule, rows)) for name, rows in parts.items()}
        found = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        return self._asked("where", {"rule": rule, **({ELSEWHERE: found} if found else {})}, chosen)

    @property
    def forget(self) -> Tensor:
        """What the last request asks to forget."""
        if not self.requests:
            raise UserError(
                "Nothing is asked to be forgotten yet; use Split.forget_random() or so."
            )
        return self._rows(self.requests[-1])

    @property
    def earlier(self) -> tuple[Tensor, ...]:
        """What each request before the last one asked to forget."""
        return tuple(self._rows(request) for request in self.requests[:-1])

    @cached_property
    def forgotten(self) -> Tensor:
        """What all requests together ask to forget."""
        rows = [self._rows(request) for request in self.requests]
        return torch.cat(rows).sort().values if rows else torch.empty(0, dtype=torch.int64)

    @cached_property
    def retain(self) -> Tensor:
        """What was trained on and is not to be forgotten."""
        return self.train[~torch.isin(self.train, self.forgotten)]

    @property
    def whole_classes(self) -> bool:
        """Whether nothing is retained of any class that the last request asks to forget."""
        if not len(self.forget):  # erased: what was asked is all that is known
            return self.requests[-1].kind == "class"
        labels = self.data.labels
        return not bool(torch.isin(labels[self.forget], labels[self.retain]).any())

    def parts(self) -> dict[str, Tensor]:
        """The parts by name, disjoint from each other.

        Without a request: train, held_out, test. Otherwise retain, forget (the last request),
        forget_1 and so on (the earlier ones), held_out, test.
        """
        rest = {"held_out": self.held_out, "test": self.test}
        if not self.requests:
            return {"train": self.train, **rest}
        before = {f"forget_{number}": rows for number, rows in enumerate(self.earlier, 1)}
        return {"retain": self.retain, "forget": self.forget, **before, **rest}

    def measured(self) -> dict[str, Tensor]:
        """The parts that a model is measured on: those of `parts` that have samples.

        A class of which nothing is retained leaves the held-out and the test part: a model that
        forgot it must fail there. Its test samples are a part of their own, `test_forgotten`.
        """
        parts = self.parts()
        labels = self.data.labels
        known = labels[self.retain]
        held_out, test = (torch.isin(labels[rows], known) for rows in (self.held_out, self.test))
        parts |= {"held_out": self.held_out[held_out], "test": self.test[test]}
        if self.requests:
            parts["test_forgotten"] = self.test[~test]
        return {name: rows for name, rows in parts.items() if len(rows)}

    def duplicates(self) -> dict[str, str]:
        """Which samples of the forget part are retained under another id too, and under which.

        Equal in every pixel and in the label, by the fingerprints. A model goes on knowing them.
        """
        kept = zip(self.data.hashes(self.retain), self.retain.tolist(), strict=True)
        retained = {mark: self.data.ids[row] for mark, row in kept}
        marks = zip(self.forget.tolist(), self.data.hashes(self.forget), strict=True)
        return {self.data.ids[row]: retained[mark] for row, mark in marks if mark in retained}

    def duplicates_told(self) -> dict[str, Any]:
        """The duplicates as a run's figures keep them; nothing if there are none."""
        found = self.duplicates()
        if not found:
            return {}
        shown = [f"{one} as {copy}" for one, copy in itertools.islice(found.items(), SHOWN)]
        some = ", ".join(shown) + (", ..." if len(found) > SHOWN else "")
        sentence = (
            f"{len(found):,} of the {len(self.forget):,} samples to forget are retained under "
            f"other ids too ({some}): the model will go on knowing them; ask to forget the copies "
            "too."
        )
        return {"duplicates": {"count": len(found), "copies": found, "sentence": sentence}}

    def elsewhere_told(self) -> dict[str, Any]:
        """What else the last request's rule fits, as a run's figures keep it; or nothing."""
        found = self.requests[-1].detail.get(ELSEWHERE)
        if not found:
            return {}
        sentence = (
            f"The rule also fits samples that the model was never trained on ({found}): there is "
            "nothing of them to forget, but they stay in the data, and are measured on."
        )
        return {"elsewhere": {"sentence": sentence}}

    def to_json(self) -> str:
        """The manifest: ids and fingerprints of every part, and the requests."""
        return manifest.dump(
            manifest.Manifest(
                dataset=self.data.name,
                seed=self.seed,
                classes=self.data.classes,
                mean=self.data.mean,
                std=self.data.std,
                train={**self._fingerprints(self.train), **self.erased},
                held_out=self._fingerprints(self.held_out),
                test=self._fingerprints(self.test),
                requests=self.requests,
            )
        )

    @classmethod
    def from_json(cls, text: str, data: DataLike) -> Split:
        """Read a manifest and check it against the data, sample by sample.

        Samples that were asked to be forgotten may be gone from the data; every other sample must
        be there unchanged. Class numbers and normalisation are the manifest's, so that a model goes
        on seeing the same numbers when what they were computed from has been erased.

        >>> from qunlearn.data import load_dataset
        >>> split = Split.random(load_dataset("digits"))
        >>> Split.from_json(split.to_json(), split.data).digest == split.digest
        True
        """
        kept = manifest.parse(text)
        data = manifest.align(kept, as_image_data(data))
        may_miss = {name for request in kept.requests for name in request.ids}
        erased = {k: v for k, v in kept.train.items() if k in may_miss and k not in data}
        left = {name: mark for name, mark in kept.train.items() if name not in erased}
        parts = [manifest.find(part, data) for part in (left, kept.held_out, kept.test)]
        train, held_out, test = parts
        return cls(data, kept.seed, kept.requests, train, held_out, test, erased)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the manifest: two splits with one digest are the same split."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def _asked(self, kind: str, detail: Mapping[str, Any], ids: list[str]) -> Split:
        told = ", ".join(f"{key} {value!r}" for key, value in detail.items()) or "the list of ids"
        if not ids:
            raise UserError(
                f"There is nothing to forget: {told} matches no sample that is trained on and not "
                "yet forgotten; ask for others."
            )
        if len(ids) == len(self.retain):
            raise UserError(
                f"Nothing would be retained: {told} covers all {len(ids)} remaining training "
                "samples; ask for fewer, or train a new model."
            )
        return dataclasses.replace(
            self, requests=(*self.requests, Request(kind, detail, tuple(sorted(ids))))
        )

    def _rows(self, request: Request) -> Tensor:
        return self.data.index_of(n for n in request.ids if n not in self.erased).sort().values

    def _fingerprints(self, rows: Tensor) -> dict[str, str]:
        names = (self.data.ids[row] for row in rows.tolist())
        return dict(zip(names, self.data.hashes(rows), strict=True))

    def _part_of(self, name: str) -> str:
        row = self.data.index_of([name])
        for part, rows in {"held-out": self.held_out, "test": self.test}.items():
            if torch.isin(row, rows).item():
                return f"it belongs to the {part} part"
        return "it belongs to no part of the split"


_NONE, _TRAIN, _HELD_OUT, _TEST = 0, 1, 2, 3
