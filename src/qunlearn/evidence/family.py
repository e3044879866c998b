"""Which runs in a folder hold the samples of a request, and what has to become of each.

A run whose network has forgotten the samples is cleaned of them; one whose network still knows them
is deleted. The search follows no symbolic link.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from qunlearn.data import manifest
from qunlearn.data.manifest import Manifest
from qunlearn.errors import UserError
from qunlearn.runs.provenance import provenance_of
from qunlearn.store import study
from qunlearn.store.place import FILE, kind_of
from qunlearn.store.run import CONFIG, SPLIT, Run

Role = Literal["clean", "delete", "comparison", "unreadable"]


@dataclass(frozen=True)
class Relative:
    """A folder that holds samples of the request.

    Attributes:
        path: The folder.
        role: What has to become of it.
        cascade: Whether that would take something from others, and has to be asked for.
        answered: Whether it answered an earlier request, which stays in the ledger.
    """

    path: Path
    role: Role
    cascade: bool = False
    answered: bool = False


def runs_in(folder: Path) -> Iterator[Path]:
    """Every run folder below a folder, finished or not; links are not followed."""
    for place, names, files in os.walk(folder):
        names[:] = sorted(name for name in names if not name.startswith("."))
        here = Path(place)
        if CONFIG in files and SPLIT in files and kind_of(here / SPLIT) == FILE:
            names.clear()
            yield here


def comparisons_in(folder: Path) -> Iterator[Path]:
    """Every folder of a comparison below a folder."""
    for place, names, files in os.walk(folder):
        names.sort()
        if study.CONFIG in files:
            yield Path(place)


def family(run: Run, within: Path) -> list[Relative]:
    """All folders that hold samples which the run has forgotten, the run itself last."""
    own = manifest.parse(run.split)
    compared = list(comparisons_in(within))
    ancestors = ancestor_digests(run, within)
    found: list[Relative] = []
    for path in runs_in(within):
        if path.resolve() == run.path.resolve():
            continue
        try:
            other = manifest.parse(Run(path).split)
            digest = Run(path).info.model_sha256 if Run.is_complete(path) else ""
        except UserError:
            found.append(Relative(path, "unreadable"))
            continue
        if not holds(other, own):
            continue
        if any(path.is_relative_to(folder) for folder in compared):
            found.append(Relative(path, "delete"))
            continue
        gone = other.forgotten | other.retired
        knows = not Run.is_complete(path) or not shared(other, own) <= gone
        answered = bool(other.requests) and is_before(other, own)
        above = answered or digest in ancestors
        cascade = not above if knows else is_before(own, other)
        role: Role = "delete" if knows else "clean"
        found.append(Relative(path, role, cascade, answered and Run.is_complete(path)))
    touched = [each.path for each in found]
    for folder in compared:
        if any(path.is_relative_to(folder) for path in touched):
            found.append(Relative(folder, "comparison"))
    return [*found, Relative(run.path, "clean")]


def erasable(own: Manifest) -> frozenset[str]:
    """The ids of a run that may be erased: all that it has forgotten or retired."""
    return own.forgotten | own.retired


def shared(other: Manifest, own: Manifest) -> frozenset[str]:
    """The samples to erase that another manifest has, too: the same id with the same hash."""
    theirs = {**other.train, **other.held_out, **other.test}
    ours = {**own.train, **own.held_out, **own.test}
    names = erasable(own) & theirs.keys()
    if other.keyed != own.keyed:  # their hashes say nothing
        return names
    return frozenset(name for name in names if theirs[name] == ours[name])


def holds(other: Manifest, own: Manifest) -> bool:
    """Whether another manifest has samples that are to be erased."""
    return other.dataset == own.dataset and bool(shared(other, own))


def is_before(one: Manifest, other: Manifest) -> bool:
    """Whether the requests of one run are the first of another's, which has more."""
    count = len(one.requests)
    return count < len(other.requests) and other.requests[:count] == one.requests


def ancestor_digests(run: Run, within: Path) -> set[str]:
    """The digests of all networks that a run's descends from, as far as runs are at hand."""
    at_hand = {}
    for path in runs_in(within):
        if Run.is_complete(path):
            try:
                at_hand[Run(path).info.model_sha256] = Run(path)
            except UserError:
                continue
    digests: set[str] = set()
    pending = [run]
    while pending:
        here = pending.pop()
        try:
            info, record = here.info, provenance_of(here)
        except UserError:
            continue
        recipe = record.recipe
        named = {info.origin, info.weights_of, record.origin, record.start}
        named |= {recipe.network, recipe.start} if recipe else set()
        for digest in named - digests - {None}:
            assert digest is not None
            digests.add(digest)
            if digest in at_hand:
                pending.append(at_hand[digest])
    return digests - {run.info.model_sha256}
