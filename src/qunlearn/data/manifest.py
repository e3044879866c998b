"""The split manifest as JSON: the id and fingerprint of every sample, validated on reading."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from qunlearn.data.dataset import ImageData, first_repeated
from qunlearn.data.manifest_key import ManifestKey
from qunlearn.errors import UserError
from qunlearn.store.layout import KEY
from qunlearn.store.limits import parse_json

OLDEST, RETIRED, NEWEST = 1, 2, 3
"""The supported formats. Format 2 adds retired samples, format 3 keyed hashes. The oldest one
that has everything is written, so that the digest of a split does not depend on the version."""
KINDS = ("random", "class", "ids", "where")
TOKEN = "erased/"
"""What the names of erased samples begin with."""


@dataclass(frozen=True)
class Request:
    """One request to forget.

    Attributes:
        kind: How samples were selected: random, class, ids or where.
        detail: The parameters, such as {"fraction": 0.1, "seed": 0}.
        ids: The training samples to forget, in alphabetical order.
        retired: The held-out and test samples to retire, in alphabetical order.
    """

    kind: str
    detail: Mapping[str, Any]
    ids: tuple[str, ...]
    retired: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """The content of a manifest; the parts map ids to fingerprints, including retired samples.

    `keyed` names the key of the fingerprints, if they have one.
    """

    dataset: str
    seed: int
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    train: Mapping[str, str]
    held_out: Mapping[str, str]
    test: Mapping[str, str]
    requests: tuple[Request, ...]
    keyed: str = ""

    @property
    def format(self) -> int:
        """The format that it is written in."""
        if self.keyed:
            return NEWEST
        return RETIRED if self.retired else OLDEST

    @property
    def forgotten(self) -> frozenset[str]:
        """The ids of all samples in requests to forget."""
        return frozenset(name for request in self.requests for name in request.ids)

    @property
    def retired(self) -> frozenset[str]:
        """The ids of all samples that were retired."""
        return frozenset(name for request in self.requests for name in request.retired)

    @property
    def retained(self) -> dict[str, str]:
        """The fingerprints of the training samples that are not forgotten, by id."""
        forgotten = self.forgotten
        return {name: value for name, value in self.train.items() if name not in forgotten}

    @property
    def unnamed(self) -> int:
        """How many samples were erased, so that their ids are no longer known."""
        return sum(name.startswith(TOKEN) for name in self.forgotten | self.retired)

    @property
    def names(self) -> frozenset[str]:
        """The ids of all samples that the split was made of."""
        return frozenset({**self.train, **self.held_out, **self.test})


def dump(manifest: Manifest) -> str:
    """Serialise a manifest as canonical JSON: equal splits give equal text."""
    value = {
        "format": manifest.format,
        "dataset": manifest.dataset,
        "seed": manifest.seed,
        "classes": list(manifest.classes),
        "normalisation": {"mean": list(manifest.mean), "std": list(manifest.std)},
        "parts": {
            "train": dict(manifest.train),
            "held_out": dict(manifest.held_out),
            "test": dict(manifest.test),
        },
        "requests": [
            {"kind": request.kind, "detail": dict(request.detail), "ids": list(request.ids)}
            | ({"retired": list(request.retired)} if request.retired else {})
            for request in manifest.requests
        ],
    }
    if manifest.keyed:
        value["keyed"] = manifest.keyed
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def parse(text: str) -> Manifest:
    """Parse and validate a manifest; an invalid one is a `UserError`."""
    try:
        value = parse_json(text, object_pairs_hook=_once)
    except UserError:
        raise
    except (ValueError, RecursionError) as error:
        raise UserError(f"The split manifest is not valid JSON: {error}.") from None
    _check(isinstance(value, dict), "it is not an object")
    version = value.get("format")
    _check(isinstance(version, int), "it has no format version")
    if version > NEWEST:
        raise UserError(
            f"The split manifest has format {version}; this version of qunlearn reads formats "
            f"{OLDEST} to {NEWEST}; upgrade qunlearn."
        )
    _check(version >= OLDEST, f"format {version} does not exist")
    _check(isinstance(value.get("dataset"), str), "'dataset' is not a name")
    _check(_is_integer(value.get("seed")), "'seed' is not a whole number")
    classes = _texts(value.get("classes"), "'classes'")
    moments = value.get("normalisation")
    _check(isinstance(moments, dict), "'normalisation' is missing")
    parts = value.get("parts")
    _check(isinstance(parts, dict), "'parts' is missing")
    train, held_out, test = (_part(parts, name) for name in ("train", "held_out", "test"))
    for one, other in ((train, held_out), (train, test), (held_out, test)):
        for name in one.keys() & other.keys():
            raise UserError(f"The split manifest is not valid: {name!r} is in two parts.")
    _check(isinstance(value.get("requests"), list), "'requests' is not a list")
    unseen = held_out.keys() | test.keys()
    requests = tuple(_request(entry, train, unseen) for entry in value["requests"])
    named = [name for request in requests for name in request.ids]
    _check(len(named) == len(set(named)), "a sample is to be forgotten twice")
    _check(len(named) < len(train), "nothing is retained")
    retired = [name for request in requests for name in request.retired]
    _check(len(retired) == len(set(retired)), "a sample is retired twice")
    keyed = value.get("keyed", "")
    _check(isinstance(keyed, str), "'keyed' is not a name")
    manifest = Manifest(
        dataset=value["dataset"],
        seed=value["seed"],
        classes=classes,
        mean=_numbers(moments.get("mean"), "'mean'"),
        std=_numbers(moments.get("std"), "'std'"),
        train=train,
        held_out=held_out,
        test=test,
        requests=requests,
        keyed=keyed,
    )
    _check(version == manifest.format, f"its content does not match format {version}")
    return manifest


def align(manifest: Manifest, data: ImageData) -> ImageData:
    """The data with the manifest's name, class numbers and normalisation.

    Classes are matched by name: if a forgotten class was erased from the data, the numbers of later
    classes have shifted.
    """
    numbers = {name: number for number, name in enumerate(manifest.classes)}
    unknown = [name for name in data.classes if name not in numbers]
    if unknown:
        raise another(
            manifest, data.name, f"it has a class {unknown[0]!r} that is not in the split"
        )
    if len(manifest.mean) != data.channels:
        raise another(
            manifest, data.name, f"it has {data.channels} channels, not {len(manifest.mean)}"
        )
    known = (data.name, data.classes, data.mean, data.std)
    if known == (manifest.dataset, manifest.classes, manifest.mean, manifest.std):
        return data
    labels = data.labels
    if data.classes != manifest.classes:
        labels = torch.tensor([numbers[name] for name in data.classes])[labels]
    return dataclasses.replace(
        data,
        name=manifest.dataset,
        labels=labels,
        classes=manifest.classes,
        mean=manifest.mean,
        std=manifest.std,
    )


def find(
    manifest: Manifest,
    data: ImageData,
    *parts: Mapping[str, str],
    called: str,
    key: ManifestKey | None = None,
) -> tuple[Tensor, ...]:
    """The ascending indices of each part's samples, after verifying their fingerprints.

    `data` is aligned with the manifest; `called` is its original name; `key` is that of the
    fingerprints, if they are keyed.
    """
    check_key(manifest, key)
    expected = {name: value for part in parts for name, value in part.items()}
    missing = [name for name in expected if name not in data]
    present = [name for name in expected if name in data]
    actual = zip(present, data.hashes(data.index_of(present)), strict=True)
    changed = [name for name, mark in actual if sealed(key, name, mark) != expected[name]]
    faults = {"missing": missing, "changed": changed}
    counts = [f"{len(names):,} {kind} ({_some(names)})" for kind, names in faults.items() if names]
    if counts:
        raise another(
            manifest, called, f"of {len(expected):,} samples that are used, {' and '.join(counts)}"
        )
    return tuple(data.index_of(part).sort().values for part in parts)


def check_key(manifest: Manifest, key: ManifestKey | None) -> None:
    """Raise unless the key is the one that the fingerprints were made with."""
    if manifest.keyed != ("" if key is None else key.id):
        which = f"the key {manifest.keyed}" if manifest.keyed else "no key"
        raise UserError(
            f"The hashes of the split were made with {which}, and "
            f"{'none' if key is None else f'the key {key.id}'} is at hand, so that the samples "
            f"cannot be checked; restore {KEY!r} of the run's folder from a copy."
        )


def sealed(key: ManifestKey | None, name: str, fingerprint: str) -> str:
    """The fingerprint of a sample as a manifest has it."""
    return fingerprint if key is None else key.seal(name, fingerprint)


def has_all(text: str, data: ImageData) -> bool:
    """Whether the data has every sample of a manifest that is neither forgotten nor retired."""
    manifest = parse(text)
    return all(name in data for name in manifest.names - manifest.forgotten - manifest.retired)


def another(manifest: Manifest, called: str, why: str) -> UserError:
    """The error for data that does not match a split."""
    original = "" if called == manifest.dataset else f", which was made of {manifest.dataset!r}"
    return UserError(
        f"The data {called!r} does not match the split{original}: {why}. Restore the data, or name "
        "the right data with --data PATH; only forgotten or retired samples may be erased."
    )


def _some(names: Sequence[str], count: int = 3) -> str:
    return ", ".join(map(repr, names[:count])) + (", ..." if len(names) > count else "")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    twice = first_repeated(name for name, _ in pairs)
    if twice is not None:
        raise UserError(f"The split manifest is not valid: {twice!r} occurs twice.")
    return dict(pairs)


def _check(valid: bool, fault: str) -> None:
    if not valid:
        raise UserError(f"The split manifest is not valid: {fault}.")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _texts(value: Any, name: str) -> tuple[str, ...]:
    _check(
        isinstance(value, list) and all(isinstance(entry, str) for entry in value),
        f"{name} is not a list of names",
    )
    _check(len(set(value)) == len(value), f"{name} has a name twice")
    return tuple(value)


def _numbers(value: Any, name: str) -> tuple[float, ...]:
    _check(
        isinstance(value, list) and all(_is_integer(x) or isinstance(x, float) for x in value),
        f"{name} is not a list of numbers",
    )
    return tuple(float(entry) for entry in value)


def _part(parts: Mapping[str, Any], name: str) -> dict[str, str]:
    part = parts.get(name)
    _check(
        isinstance(part, dict)
        and all(isinstance(v, str) and re.fullmatch("[0-9a-f]{32}", v) for v in part.values()),
        f"the part {name!r} does not map ids to fingerprints",
    )
    assert isinstance(part, dict)
    return part


def _request(entry: Any, train: Mapping[str, str], unseen: Set[str]) -> Request:
    _check(
        isinstance(entry, dict)
        and entry.get("kind") in KINDS
        and isinstance(entry.get("detail"), dict),
        "a request is malformed",
    )
    ids = _texts(entry.get("ids"), "the 'ids' of a request")
    retired = _texts(entry.get("retired", []), "the 'retired' of a request")
    _check(bool(ids or retired), "a request is empty")
    for name in ids:
        _check(name in train, f"{name!r} is to be forgotten but was never trained on")
    for name in retired:
        _check(name in unseen, f"{name!r} is retired but is neither held out nor a test sample")
    return Request(entry["kind"], entry["detail"], ids, retired)
