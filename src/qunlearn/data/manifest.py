"""The split as text: ids and a fingerprint per sample, checked when it is read."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from qunlearn.data.dataset import ImageData, first_repeated
from qunlearn.errors import UserError

VERSION = 1
KINDS = ("random", "class", "ids", "where")


@dataclass(frozen=True)
class Request:
    """One request to forget.

    Attributes:
        kind: How it was put: random, class, ids or where.
        detail: What was asked, such as {"fraction": 0.1, "seed": 0}.
        ids: The samples, in alphabetical order.
    """

    kind: str
    detail: Mapping[str, Any]
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Manifest:
    """What the text holds; the parts map ids to fingerprints."""

    dataset: str
    seed: int
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    train: Mapping[str, str]
    held_out: Mapping[str, str]
    test: Mapping[str, str]
    requests: tuple[Request, ...]


def dump(manifest: Manifest) -> str:
    """The manifest as canonical JSON: one split has one text."""
    value = {
        "format": VERSION,
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
            for request in manifest.requests
        ],
    }
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def parse(text: str) -> Manifest:
    """Read the text; whatever is wrong with it is said in one sentence."""
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except UserError:
        raise
    except (ValueError, RecursionError) as error:
        raise UserError(f"The split manifest is not valid JSON: {error}.") from None
    _check(isinstance(value, dict), "it is not an object")
    version = value.get("format")
    _check(isinstance(version, int), "it has no format version")
    if version > VERSION:
        raise UserError(
            f"The split manifest has format {version}, made by a newer qunlearn; this one reads "
            f"format {VERSION}: upgrade qunlearn."
        )
    _check(version == VERSION, f"format {version} does not exist")
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
    requests = tuple(_request(entry, train) for entry in value["requests"])
    named = [name for request in requests for name in request.ids]
    _check(len(named) == len(set(named)), "a sample is asked to be forgotten twice")
    _check(len(named) < len(train), "nothing is retained")
    return Manifest(
        dataset=value["dataset"],
        seed=value["seed"],
        classes=classes,
        mean=_numbers(moments.get("mean"), "'mean'"),
        std=_numbers(moments.get("std"), "'std'"),
        train=train,
        held_out=held_out,
        test=test,
        requests=requests,
    )


def align(manifest: Manifest, data: ImageData) -> ImageData:
    """The data with the manifest's class numbers and normalisation.

    A class that was forgotten and erased is missing from the data, and the numbers of those after
    it would have shifted: classes are matched by name.
    """
    numbers = {name: number for number, name in enumerate(manifest.classes)}
    strange = [name for name in data.classes if name not in numbers]
    if strange:
        raise UserError(
            f"The data set {data.name} has a class {strange[0]!r} that the split of "
            f"{manifest.dataset} does not know; use the data that the split was made for."
        )
    if len(manifest.mean) != data.channels:
        raise UserError(
            f"The data set {data.name} has {data.channels} channels, the split of "
            f"{manifest.dataset} was made for {len(manifest.mean)}."
        )
    wanted = (manifest.classes, manifest.mean, manifest.std)
    if (data.classes, data.mean, data.std) == wanted:
        return data
    labels = data.labels
    if data.classes != manifest.classes:
        labels = torch.tensor([numbers[name] for name in data.classes])[labels]
    return dataclasses.replace(
        data, labels=labels, classes=manifest.classes, mean=manifest.mean, std=manifest.std
    )


def find(part: Mapping[str, str], data: ImageData) -> Tensor:
    """The ascending indices of a part's samples, each compared with its fingerprint."""
    for name in part:
        if name not in data:
            raise UserError(
                f"The sample {name!r} of the split is missing in {data.name}; use the data that "
                "the split was made for (only samples that were forgotten may be erased)."
            )
    rows = data.index_of(part)
    for name, now in zip(part, data.hashes(rows), strict=True):
        if now != part[name]:
            raise UserError(
                f"The sample {name!r} of {data.name} has changed since the split was made; restore "
                "it, or make a new split and train again."
            )
    return rows.sort().values


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    twice = first_repeated(name for name, _ in pairs)
    if twice is not None:
        raise UserError(f"The split manifest is not valid: {twice!r} occurs twice.")
    return dict(pairs)


def _check(right: bool, fault: str) -> None:
    if not right:
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


def _request(entry: Any, train: Mapping[str, str]) -> Request:
    _check(
        isinstance(entry, dict)
        and entry.get("kind") in KINDS
        and isinstance(entry.get("detail"), dict),
        "a request is malformed",
    )
    ids = _texts(entry.get("ids"), "the 'ids' of a request")
    _check(bool(ids), "a request is empty")
    for name in ids:
        _check(name in train, f"{name!r} is to be forgotten but was never trained on")
    return Request(entry["kind"], entry["detail"], ids)
