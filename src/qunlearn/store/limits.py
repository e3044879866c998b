"""Limits on the size and content of files, checked before parsing.

A parser needs many times the size of a file in memory, and some need quadratic time. Real files
stay far below these limits.
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
"""Maximum file size in bytes: by file name if it is listed, otherwise by format."""

MOST_MEMORY = 1 << 27
"""Maximum bytes of a decoded text: one non-Latin character can widen all others to four bytes."""

MOST_VALUES = 2_000_000
"""Maximum number of values in a JSON file, or of lines in a CSV or text file."""

MOST_DOTS = 4_000
"""Maximum number of dots in a TOML file: the memory for a dotted key is quadratic in its parts."""

MOST_PARTS = 20
"""Maximum number of parts in a TOML table name: each key in the table takes linear time in it."""

MOST_TENSORS = 100_000
"""Maximum number of tensors in a safetensors file."""


def largest(path: Path, kind: str) -> int:
    """Maximum size of a file, in bytes."""
    return LARGEST.get(path.name, LARGEST[kind])


def parse_json(text: str, **options: Any) -> Any:
    """Parse JSON; too many values are a `ValueError`."""
    check_count(sum(map(text.count, ",{[")), "values")
    return json.loads(text, **options)


def parse_lines(text: str) -> list[Any]:
    """Parse JSON Lines; too many values in total are a `ValueError`."""
    check_count(sum(map(text.count, "\n,{[")), "values")
    return [json.loads(line) for line in text.split("\n") if line]


def check_count(number: int, what: str, most: int = MOST_VALUES) -> None:
    """Raise a `ValueError` if a number exceeds its limit."""
    if number > most:
        raise ValueError(f"it has {number:,} {what}, more than the limit of {most:,}")


def check_memory(text: str) -> None:
    """Raise a `ValueError` if a decoded text takes too much memory."""
    check_count(sys.getsizeof(text), "bytes in memory", MOST_MEMORY + 1024)


def check_toml(text: str) -> None:
    """Raise a `ValueError` if TOML keys may have too many parts."""
    check_count(text.count("."), "dots", MOST_DOTS)
    for name in re.findall(r"^[ \t]*\[.*", text, re.MULTILINE):
        check_count(name.count(".") + 1, "parts in a table's name", MOST_PARTS)
