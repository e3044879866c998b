"""Which runs in a folder hold the samples of a request, and what has to become of each.

A run whose network has forgotten the samples is cleaned of them; one whose network still knows them
is deleted. The search follows no symbolic link.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from qunlearn.audit.pool_folder import pool_above
from qunlearn.data import manifest
from qunlearn.data.manifest import Manifest, Request
from qunlearn.data.manifest_key import ManifestKey
from qunlearn.errors import UserError
from qunlearn.runs.provenance import lines_of, provenance_of
from qunlearn.store import study
from qunlearn.store.layout import CONFIG, PAPERS, SPLIT
from qunlearn.store.place import FILE, kind_of
from qunlearn.store.run import Run
from qunlearn.store.swap import STAGE

Role = Literal["clean", "delete", "comparison", "pool", "rekey", "unreadable"]


def key_of(requests: tuple[Request, ...]) -> str:
    """What a run's requests are told apart by: a digest of the samples that each of them names."""
    samples = [(request.ids, request.retired) for request in requests]
    return hashlib.sha256(json.dumps(samples).encode()).hexdigest()


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
        names[:] = sorted(name for name in names if name != STAGE)
        path = Path(place)
        if CONFIG in files and SPLIT in files and kind_of(path / SPLIT) == FILE:
            yield path


def comparisons_in(folder: Path) -> Iterator[Path]:
    """Every folder of a comparison below a folder."""
    for place, names, files in os.walk(folder):
        names.sort()
        if study.CONFIG in files:
            yield Path(place)


def pools_in(folder: Path) -> Iterator[Path]:
    """Every pool of networks below a folder."""
    pools = (pool_above(path) for path in runs_in(folder))
    yield from dict.fromkeys(pool for pool in pools if pool is not None)


def family(run: Run, within: Path) -> list[Relative]:
    """All folders that hold samples which the run has forgotten, the run itself last."""
    split = manifest.parse(run.split)
    compared, pools = list(comparisons_in(within)), list(pools_in(within))
    ancestors = ancestor_digests(run, within)
    others = (path for path in runs_in(within) if path.resolve() != run.path.resolve())
    relatives = [
        relative
        for path in others
        if (relative := _relative(path, run, split, [*compared, *pools], ancestors)) is not None
    ]
    changed = [each.path for each in relatives if each.role in ("delete", "clean")]
    studies: dict[Role, list[Path]] = {"comparison": compared, "pool": pools}
    relatives += [
        Relative(folder, role)
        for role, folders in studies.items()
        for folder in folders
        if any(path.is_relative_to(folder) for path in changed)
    ]
    return [*_answered_once(relatives), Relative(run.path, "clean")]


def _answered_once(relatives: list[Relative]) -> list[Relative]:
    """Of several runs for the same requests, only one stays in the ledger: whose papers say most.

    A signed record says more than the line of a request, and that more than nothing.
    """

    def papers(path: Path) -> tuple[bool, bool]:
        return kind_of(path / PAPERS[0]) == FILE, bool(lines_of(Run(path)))

    best: dict[str, Path] = {}
    for each in relatives:
        if each.answered:
            key = key_of(manifest.parse(Run(each.path).split).requests)
            if key not in best or papers(each.path) > papers(best[key]):
                best[key] = each.path
    kept = set(best.values())
    return [replace(each, answered=each.path in kept) for each in relatives]


def _relative(
    path: Path, run: Run, split: Manifest, studies: list[Path], ancestors: set[str]
) -> Relative | None:
    """What has to become of a run, if anything."""
    complete = Run.is_complete(path)
    try:
        other = manifest.parse(Run(path).split)
        digest = Run(path).info.model_sha256 if complete else ""
        keys = ManifestKey.read(path), ManifestKey.read(run.path)
    except UserError:
        return Relative(path, "unreadable")
    names = shared(other, split, *keys)
    if other.dataset != split.dataset or not names:
        shares_key = bool(split.keyed) and other.keyed == split.keyed
        return Relative(path, "rekey") if shares_key else None
    if any(path.is_relative_to(folder) for folder in studies):
        return Relative(path, "delete")
    knows = not complete or not names <= erasable(other)
    answered = bool(other.requests) and is_before(other, split)
    if knows:
        above = answered or digest in ancestors
        return Relative(path, "delete", cascade=not above, answered=answered and complete)
    return Relative(path, "clean", is_before(split, other), answered)


def erasable(split: Manifest) -> frozenset[str]:
    """The ids of a run that may be erased: all that it has forgotten or retired."""
    return split.forgotten | split.retired


def shared(
    other: Manifest,
    split: Manifest,
    other_key: ManifestKey | None = None,
    split_key: ManifestKey | None = None,
) -> frozenset[str]:
    """The samples to erase that another manifest has, too: the same id with the same hash.

    Hashes under different keys say nothing; the id alone decides then. Two keys of one name differ
    for samples that an earlier erasure has destroyed the keys of.
    """
    theirs = {**other.train, **other.held_out, **other.test}
    ours = {**split.train, **split.held_out, **split.test}
    names = erasable(split) & theirs.keys()
    if other.keyed != split.keyed:
        return names

    def comparable(name: str) -> bool:
        return not (other_key and split_key) or split_key.agrees(other_key, name)

    return frozenset(n for n in names if theirs[n] == ours[n] or not comparable(n))


def is_before(one: Manifest, other: Manifest) -> bool:
    """Whether the requests of one run are the first of another's, which has more."""
    count = len(one.requests)
    return count < len(other.requests) and other.requests[:count] == one.requests


def ancestor_digests(run: Run, within: Path) -> set[str]:
    """The digests of all networks that a run's descends from, as far as runs are at hand."""
    runs = {}
    for path in runs_in(within):
        if Run.is_complete(path):
            try:
                runs[Run(path).info.model_sha256] = Run(path)
            except UserError:
                continue
    digests: set[str] = set()
    pending = [run]
    while pending:
        descendant = pending.pop()
        try:
            info, record = descendant.info, provenance_of(descendant)
        except UserError:
            continue
        recipe = record.recipe
        parents = {info.origin, info.weights_of, record.origin, record.start}
        parents |= {recipe.network, recipe.start} if recipe else set()
        for digest in parents - digests - {None}:
            assert digest is not None
            digests.add(digest)
            if digest in runs:
                pending.append(runs[digest])
    return digests - {run.info.model_sha256}
