"""A run without anything that speaks of certain samples: their ids become meaningless tokens."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from qunlearn.data import manifest
from qunlearn.data.manifest import TOKEN, Manifest, Request
from qunlearn.data.manifest_key import ManifestKey
from qunlearn.evidence.samples import drop_rows
from qunlearn.runs.data import DATA, data_config
from qunlearn.runs.model_file import Header, tensors_of
from qunlearn.runs.provenance import TABLE
from qunlearn.store import toml
from qunlearn.store.checksums import write_checksums
from qunlearn.store.files import json_text, sha256, write_json, write_text
from qunlearn.store.layout import (
    ALSO,
    AUDIT,
    CHECKPOINT,
    CHECKSUMS,
    CONFIG,
    HISTORY,
    INFO,
    METRICS,
    MODEL,
    PAGE,
    PREDICTIONS,
    SPLIT,
)
from qunlearn.store.place import FILE, kind_of
from qunlearn.store.run import Run
from qunlearn.store.swap import is_ready, move_in, new_stage, set_ready
from qunlearn.store.typed import untyped
from qunlearn.store.weights import write_weights

ASKED = ("where", "ids", "column", "requests", "skip_unusable")
"""Settings that may tell whose samples were forgotten."""

MEANS = ("confidence", "entropy", "divergence", "target", "reached", "before", "after")
"""Names of means over samples in `metrics.json` and `audit.json`."""


def new_tokens(ids: frozenset[str]) -> dict[str, str]:
    """A random name for each sample, which says nothing of it; erased ones keep theirs."""
    return {
        name: TOKEN + secrets.token_hex(8) for name in sorted(ids) if not name.startswith(TOKEN)
    }


def clean_manifest(text: str, tokens: Mapping[str, str]) -> str:
    """A manifest in which samples have tokens for names, and random hashes."""
    split = manifest.parse(text)

    def part(samples: Mapping[str, str]) -> dict[str, str]:
        return {
            tokens.get(name, name): _no_hash(tokens[name]) if name in tokens else value
            for name, value in samples.items()
        }

    def request(old: Request) -> Request:
        ids, retired = (
            tuple(sorted(tokens.get(name, name) for name in names))
            for names in (old.ids, old.retired)
        )
        personal = old.kind in ("where", "ids") and {*ids, *retired} != {
            *old.ids,
            *old.retired,
        }
        return replace(old, detail={} if personal else old.detail, ids=ids, retired=retired)

    return manifest.dump(
        replace(
            split,
            train=part(split.train),
            held_out=part(split.held_out),
            test=part(split.test),
            requests=tuple(request(old) for old in split.requests),
        )
    )


def _no_hash(token: str) -> str:
    """In place of a sample's hash: that of its random token."""
    return hashlib.blake2b(token.encode(), digest_size=16).hexdigest()


def clean_run(path: Path, tokens: Mapping[str, str]) -> None:
    """Replace the files of a run by ones without the samples; may be repeated after a kill."""
    if not is_ready(path):
        run = Run(path)
        split = manifest.parse(run.split)
        if not split.names & tokens.keys():
            return  # it was cleaned before the kill
        _stage(run, split, tokens)
    move_in(path)


def _stage(run: Run, split: Manifest, tokens: Mapping[str, str]) -> None:
    stage = new_stage(run.path)
    text = clean_manifest(run.split, tokens)
    write_text(stage / SPLIT, text)
    header = replace(Header.read(run.model_path), split=text)
    write_weights(stage / MODEL, tensors_of(run), header.to_dict())
    write_text(stage / CONFIG, toml.dumps(config_without_request(run)))
    write_json(stage / METRICS, coarse(renamed(run.metrics, tokens)))
    if kind_of(run.path / AUDIT) == FILE:
        write_json(stage / AUDIT, coarse(renamed(run.audits, tokens)))
    logits = {k: v for k, v in run.predictions.items() if k not in _parts(split, tokens)}
    if run.has_predictions:
        write_weights(stage / PREDICTIONS, logits, {"parts": list(logits)})
    if kind_of(run.path / DATA) == FILE:
        drop_rows(run.path / DATA, frozenset(tokens), stage / DATA, alias_of(run))
    if (key := ManifestKey.read(run.path)) is not None:
        key.without(tokens, split.names - tokens.keys()).write(stage)
    digests = {name: sha256(stage / name) for name in (CONFIG, SPLIT, MODEL, METRICS)}
    if run.has_predictions:
        digests[PREDICTIONS] = sha256(stage / PREDICTIONS)
    if (run.path / HISTORY).is_file():
        digests[HISTORY] = sha256(run.path / HISTORY)
    info = json_text(untyped(replace(run.info, model_sha256=digests[MODEL])))
    digests[INFO] = hashlib.sha256(info.encode()).hexdigest()
    write_checksums(stage / CHECKSUMS, digests)
    write_text(stage / INFO, info)
    proofs = [p.name for p in run.path.iterdir() if ALSO.fullmatch(p.name) and p.suffix == ".json"]
    set_ready(run.path, [PAGE, CHECKPOINT, *sorted(proofs)])


def alias_of(run: Run) -> Callable[[str], str]:
    """What a sample of the data is called in a run: its id, or its pseudonym."""
    key = ManifestKey.read(run.path)
    return key.alias if key is not None and data_config(run).pseudonymise else str


def _parts(split: Manifest, tokens: Mapping[str, str]) -> set[str]:
    """The names of the parts that erased samples were measured in."""
    requests = split.requests
    last = max((i for i, request in enumerate(requests) if request.ids), default=-1)
    return {
        "forget" if i == last else f"forget_{i + 1}"
        for i, request in enumerate(requests)
        if tokens.keys() & {*request.ids}
    }


def config_without_request(run: Run) -> dict[str, object]:
    """The settings of a run, without those that may tell whose samples were forgotten."""
    config: dict[str, object] = {k: v for k, v in run.config.items() if k not in ASKED}
    record = config.get(TABLE)
    if isinstance(record, Mapping):
        config[TABLE] = {key: value for key, value in record.items() if key != "request"}
    return {key: value for key, value in config.items() if key != "asked"}


def coarse(content: object) -> object:
    """JSON in which means over samples have three digits, which is what reports show.

    Of a single sample, all digits would be its score, and tell whoever has the network which it is.

    >>> coarse({"forget": {"confidence": 0.93314486, "samples": 1}, "FA": 97.777777})
    {'forget': {'confidence': 0.933, 'samples': 1}, 'FA': 97.777777}
    """
    match content:
        case Mapping():
            return {
                key: float(f"{each:.3g}")
                if key in MEANS and isinstance(each, float)
                else coarse(each)
                for key, each in content.items()
            }
        case list():
            return [coarse(each) for each in content]
    return content


def renamed(content: object, tokens: Mapping[str, str]) -> object:
    """JSON in which each id, wherever it stands, is the sample's token.

    >>> renamed({"copies": [{"forgotten": "train/1", "distance": 3}]}, {"train/1": "erased/0"})
    {'copies': [{'forgotten': 'erased/0', 'distance': 3}]}
    """
    match content:
        case str():
            return tokens.get(content, content)
        case Mapping():
            return {tokens.get(key, key): renamed(each, tokens) for key, each in content.items()}
        case list():
            return [renamed(each, tokens) for each in content]
    return content
