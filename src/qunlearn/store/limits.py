"""How large a file may be, and how much may be in it: asked before it is parsed.

A parser takes many times a file's size in memory, and some take time with the square of it. Real
files stay far below these bounds.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

LARGEST = {
    "TOML": 1 << 20,  # settings; a few kilobytes
    "run.json": 1 << 20,  # a few kilobytes
    "metrics.json": 1 << 22,  # a few kilobytes
    "audit.json": 1 << 22,  # a few kilobytes
    "table.json": 1 << 24,  # about 30 kB for ten methods
    "history.jsonl": 1 << 26,  # a line for each epoch, with every layer's conflict
    "split.json": 1 << 27,  # about 60 bytes for each sample
    "checksums.txt": 1 << 16,  # a line for each file
    "header": 1 << 26,  # of a safetensors file: the manifest is in it, compressed
    "JSON": 1 << 26,  # lists of ids
    "CSV": 1 << 27,  # metadata, and lists of ids
    "text": 1 << 27,  # likewise
}
"""The largest file that is read, in bytes: by its name if it has one of these, else by its kind."""

MOST_MEMORY = 1 << 27
"""Bytes of a text in memory: one rare letter makes all others take four bytes each."""

MOST_VALUES = 2_000_000
"""Values in a JSON file, or lines of a CSV or text file: more samples than a manifest can have."""

MOST_DOTS = 4_000
"""Dots in a TOML file: a key of many parts takes memory with the square of their number."""

MOST_PARTS = 20
"""Parts of a TOML table's name: every setting in the table takes time with their number."""

MOST_TENSORS = 100_000
"""Tensors in a safetensors file."""


def largest(path: Path, kind: str) -> int:
    """The largest size that a file may have."""
    return LARGEST.get(path.name, LARGEST[kind])


def parse_json(text: str, **options: Any) -> Any:
    """Parse JSON, unless it has more values than any file of ours: that is a `ValueError`."""
    check_count(sum(map(text.count, ",{[")), "values")
    return json.loads(text, **options)


def parse_lines(text: str) -> list[Any]:
    """Parse JSON line by line, under the same bound for all of them."""
    check_count(sum(map(text.count, "\n,{[")), "values")
    return [json.loads(line) for line in text.split("\n") if line]


def check_count(number: int, what: str, most: int = MOST_VALUES) -> None:
    """Raise a `ValueError` if there are too many."""
    if number > most:
        raise ValueError(f"it has {number:,} {what}, and more than {most:,} are not read")


def check_memory(text: str) -> None:
    """Raise a `ValueError` if a text takes more memory than its file led to expect."""
    check_count(sys.getsizeof(text), "bytes in memory", MOST_MEMORY + 1024)


def check_toml(text: str) -> None:
    """Raise a `ValueError` if keys may have more parts than anybody writes."""
    check_count(text.count("."), "dots", MOST_DOTS)
    for name in re.findall(r"^[ \t]*\[.*", text, re.MULTILINE):
        check_count(name.count(".") + 1, "parts in a table's name", MOST_PARTS)
