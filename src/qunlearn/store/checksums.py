"""The checksum file of a folder, as `sha256sum` writes it and `sha256sum -c` checks it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.store.files import read, write_text

_LINE = re.compile(r"([0-9a-f]{64})  ([^/\\]+)")


def write_checksums(path: Path, sums: Mapping[str, str]) -> None:
    """Write the checksums of files by their names."""
    write_text(path, "".join(f"{digest}  {name}\n" for name, digest in sums.items()))


def read_checksums(path: Path) -> dict[str, str]:
    """The checksums in a file, by the names of what they were taken of."""
    lines = read(path, str.splitlines, "text")
    found = [_LINE.fullmatch(line) for line in lines]
    sums = {match[2]: match[1] for match in found if match}
    if not lines or len(sums) < len(lines):
        raise UserError(
            f"The file {str(path)!r} is damaged: not every line is a checksum and the name of a "
            "file; restore it from a copy."
        )
    return sums
