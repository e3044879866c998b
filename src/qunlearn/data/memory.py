"""Checks that data fits into memory before it is allocated."""

from __future__ import annotations

import os
from pathlib import Path

from qunlearn.errors import UserError

SUSPICIOUS = 1 << 30  # minimum unpacked bytes at which the growth is checked
GROWTH = 200  # maximum ratio of unpacked to packed size of real images


def physical_memory() -> int | None:
    """Bytes of physical memory; None if the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # unknown on some systems
        return None


def check_memory(needed: int, what: str, remedy: str) -> None:
    """Raise if data cannot fit into physical memory.

    Args:
        needed: Required bytes.
        what: What needs them, as the subject of the message.
        remedy: What to do instead.
    """
    present = physical_memory()
    if present is not None and needed > present:
        raise UserError(
            f"{what} would take {needed:,} bytes of memory and the machine has {present:,}; "
            f"{remedy}."
        )


def check_growth(needed: int, path: Path) -> None:
    """Raise if a small file unpacks to huge arrays (a decompression bomb).

    Args:
        needed: Bytes of the arrays that it declares.
        path: The file.
    """
    size = path.stat().st_size
    if needed > max(SUSPICIOUS, GROWTH * size):
        raise UserError(
            f"The file {str(path)!r} of {size:,} bytes would unpack to {needed:,}, far more than "
            "images do; if that is intended, store the images as a folder of files."
        )
