"""Small files that would take gigabytes, or minutes, to parse: refused before they are parsed."""

from __future__ import annotations

import json
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from surroundings import MOST_SECONDS, digest

from qunlearn.data import manifest, read_ids
from qunlearn.errors import UserError
from qunlearn.store import toml
from qunlearn.store.checksums import read_checksums
from qunlearn.store.files import read, read_json, read_object
from qunlearn.store.limits import LARGEST
from qunlearn.store.run import Run
from qunlearn.store.weights import read_tensors

MOST = 300 << 20
"""Bytes of memory; a text is there twice, as bytes and as characters."""


def settings(path: Path) -> object:
    return read(path, toml.loads, "TOML")


def history(path: Path) -> object:
    return Run(path.parent).history


def split(path: Path) -> object:
    return manifest.parse(read(path, str, "text"))


def header(entries: bytes) -> bytes:
    """A safetensors file with nothing but a header."""
    return struct.pack("<Q", len(entries)) + entries


EPOCH = b'{"epoch":1,"seconds":1,"lr":%b}\n'
WIDE = "😀".encode()
TENSOR = b'"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},'
ATTACKS: dict[str, tuple[str, Callable[[], bytes], Callable[[Path], object]]] = {
    "a key of 30,000 parts": ("config.toml", lambda: b"a" + b".b" * 30_000 + b"=1", settings),
    "the same with quotes": ("config.toml", lambda: b"a" + b'."="' * 30_000 + b"=1", settings),
    "many keys of many parts": ("config.toml", lambda: (b"a." * 90 + b"b=1\n") * 5000, settings),
    "a long table name": ("config.toml", lambda: b"[" + b"a." * 5000 + b"b]\nx=1", settings),
    "settings in a deep table": (
        "config.toml",
        lambda: b"[" + b"a." * 3000 + b"b]\n" + b"".join(b"%d=1\n" % n for n in range(50_000)),
        settings,
    ),
    "a number of 9,000 digits": (
        "config.toml",
        lambda: b"a = [{b = 0x" + b"f" * 9000 + b"}]",
        settings,
    ),
    "too many settings": ("compare.toml", lambda: b"a=1\n" * (1 << 19), settings),
    "tables without end": ("metrics.json", lambda: b'{"a":[' + b"{}," * 20_000_000, read_object),
    "no small metrics": ("metrics.json", lambda: b"[" + b"{}," * 1_390_000 + b"1]", read_object),
    "much information": ("run.json", lambda: b'{"a":[' + b"{}," * 400_000 + b"1]}", read_object),
    "a crowded table": ("table.json", lambda: b'{"a":[' + b"{}," * 5_500_000, read_object),
    "a list of ids": ("ids.json", lambda: b"[" + b"[]," * 20_000_000, read_json),
    "a list of lists": ("ids.json", lambda: b"[" + b"[]," * 16_000_000 + b"1]", read_ids),
    "a rare letter in a list": (
        "ids.txt",
        lambda: (b"a" * 49 + b"\n") * 1_000_000 + WIDE,
        read_ids,
    ),
    "one in the history": (
        "history.jsonl",
        lambda: b'"' + b"a" * 50_000_000 + WIDE + b'"',
        history,
    ),
    "every delimiter": ("ids.csv", lambda: b"id,b;c\td|e\n" + b"a\n" * 1_100_000, read_ids),
    "long cells": ("ids.csv", lambda: b"id,b;c\td|e\n" + (b"a" * 99 + b"\n") * 350_000, read_ids),
    "endless epochs": ("history.jsonl", lambda: b"{}\n" * 22_000_000, history),
    "wrong epochs": ("history.jsonl", lambda: EPOCH % b"1" + b"{}\n" * 600_000, history),
    "wrong scalars": (
        "history.jsonl",
        lambda: EPOCH % (b"0" + b"".join(b',"%d":"x"' % n for n in range(1_500_000))),
        history,
    ),
    "a wrong record": (
        "history.jsonl",
        lambda: EPOCH % (b'0,"conflict":{"cosine":[[' + b'"x",' * 1_500_000 + b"1]]}"),
        history,
    ),
    "empty epochs": ("history.jsonl", lambda: b"\n" * 60_000_000, history),
    "too many samples": ("split.json", lambda: b'{"a":{' + b'"b":"",' * 3_000_000, split),
    "endless checksums": ("checksums.txt", lambda: b"0" * 100_000, read_checksums),
    "too many tensors": (
        "model.safetensors",
        lambda: header(b"{" + b"".join(TENSOR % n for n in range(150_000)) + b'"z":{}}'),
        read_tensors,
    ),
    "a shape without end": (
        "model.safetensors",
        lambda: header(
            b'{"a":{"dtype":"F32","data_offsets":[0,0],"shape":[%s0]}}' % (b"0," * 8**8)
        ),
        read_tensors,
    ),
    "a header that is no header": ("model.safetensors", lambda: b"\xff" * 100, read_tensors),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_is_refused_with_little_memory_and_time(tmp_path: Path, name: str) -> None:
    file, content, read_it = ATTACKS[name]
    (tmp_path / file).write_bytes(content())
    before = digest(tmp_path)
    tracemalloc.start()
    started = time.perf_counter()
    try:
        with pytest.raises(UserError) as refused:
            read_it(tmp_path / file)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert str(refused.value).count("\n") == 0
    assert file in str(refused.value) or "split manifest" in str(refused.value)
    assert peak < MOST
    assert time.perf_counter() - started < MOST_SECONDS
    assert digest(tmp_path) == before


def test_the_split_of_200_000_samples_is_read(tmp_path: Path) -> None:
    ids = [f"train/some-class/some-file-{number:07}.png" for number in range(200_000)]
    parts = {"train": ids[:160_000], "held_out": ids[160_000:180_000], "test": ids[180_000:]}
    text = manifest.dump(
        manifest.Manifest(
            dataset="folder",
            seed=0,
            classes=("a", "b"),
            mean=(0.5,),
            std=(0.5,),
            requests=(manifest.Request("random", {}, tuple(sorted(parts["train"])[:20_000])),),
            **{
                part: {name: f"{n:032x}" for n, name in enumerate(own)}
                for part, own in parts.items()
            },
        )
    )
    (tmp_path / "split.json").write_text(text)
    found = split(tmp_path / "split.json")
    assert isinstance(found, manifest.Manifest)
    assert len(found.train) == 160_000


def test_what_is_written_is_within_its_bound_by_far(run_folder: Path) -> None:
    for path in run_folder.iterdir():
        if path.name in LARGEST:
            assert path.stat().st_size < LARGEST[path.name] / 50


def test_a_file_of_settings_says_what_is_wrong(qunlearn, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("# " + "x" * (1 << 20))
    code, _, err = qunlearn("train", "--config", tmp_path / "a.toml", "--out", tmp_path / "new")
    assert code == 2
    assert "has more than 1,048,576 bytes" in err
    (tmp_path / "a.toml").write_text("a" + ".b" * 30_000 + " = 1")
    code, _, err = qunlearn("train", "--config", tmp_path / "a.toml", "--out", tmp_path / "new")
    assert code == 2
    assert "it has 30,000 dots, more than the limit of 4,000" in err
    assert [path.name for path in tmp_path.iterdir()] == ["a.toml"]


def test_a_header_within_the_bounds_is_read_as_ever(tmp_path: Path) -> None:
    entries = {str(n): {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(2000)}
    (tmp_path / "a.safetensors").write_bytes(header(json.dumps(entries).encode()))
    assert len(read_tensors(tmp_path / "a.safetensors")) == 2000
