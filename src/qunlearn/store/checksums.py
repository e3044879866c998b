"""The checksum file of a folder, in the format of `sha256sum`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.store.files import read, write_text

_LINE = re.compile(r"([0-9a-f]{64})  ([^/\\]+)")


def write_checksums(path: Path, sums: Mapping[str, str]) -> None:
    """Write the checksum of each file name."""
    write_text(path, "".join(f"{digest}  {name}\n" for name, digest in sums.items()))


def read_checksums(path: Path) -> dict[str, str]:
    """Read a checksum file: the checksum of each file name."""
    text = str(read(path, str, "text"))
    try:
        return parse_checksums(text)
    except ValueError as error:
        raise UserError(
            f"The file {str(path)!r} is damaged: {error}; restore it from a copy."
        ) from None


def parse_checksums(text: str) -> dict[str, str]:
    """The checksum of each file name; a `ValueError` if a line is something else."""
    lines = text.splitlines()
    matches = [_LINE.fullmatch(line) for line in lines]
    sums = {match[2]: match[1] for match in matches if match}
    if not lines or len(sums) < len(lines):
        raise ValueError("a line is not a checksum followed by a file name")
    return sums
