"""`Parts`: which sample of a data set is in which part, and which request it belongs to."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from qunlearn.data import manifest
from qunlearn.data.choose import FORGOTTEN, RETIRED, USABLE
from qunlearn.data.dataset import ImageData
from qunlearn.data.manifest import Request
from qunlearn.data.manifest_key import ManifestKey
from qunlearn.errors import UserError

SKIPPED = "skipped"
"""Key in the detail of a request: the number of skipped ids, by what is wrong with them."""


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
class Parts:
    """The parts of a data set, as ascending indices into it, and the requests to forget.

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
        return f"{type(self).__name__}({self.data.name}: {parts})"

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

    def _states(self) -> dict[str, str]:
        """The state of each sample, by id: usable, forgotten or retired."""
        states = {name: FORGOTTEN for request in self.requests for name in request.ids}
        states |= {name: RETIRED for request in self.requests for name in request.retired}
        used = torch.cat([self.retain, self.held_out, self.test]).tolist()
        return states | {self.data.ids[row]: USABLE for row in used}

    def _rows(self, request: Request) -> Tensor:
        """The samples to forget in a request; erased ones have no index."""
        return self.data.index_of(n for n in request.ids if n not in self.erased).sort().values

    def _fingerprints(self, rows: Tensor) -> dict[str, str]:
        """The fingerprints of samples, by id; made with the key, if there is one."""
        names = (self.data.ids[row] for row in rows.tolist())
        marks = zip(names, self.data.hashes(rows), strict=True)
        return {name: manifest.sealed(self.key, name, mark) for name, mark in marks}
