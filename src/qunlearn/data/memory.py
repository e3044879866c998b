"""How much memory there is, asked before it is taken."""

from __future__ import annotations

import os
from pathlib import Path

from qunlearn.errors import UserError

SUSPICIOUS = 1 << 30  # unpacked bytes from which on a file that grows too much is refused
GROWTH = 200  # times its size that a packed file of real images may grow


def check_memory(needed: int, what: str, remedy: str) -> None:
    """Refuse what cannot fit into the machine, before the attempt brings it down.

    Args:
        needed: Bytes.
        what: What needs them, as the subject of a sentence.
        remedy: What to do instead.
    """
    try:
        present = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not every system tells
        return
    if needed > present:
        raise UserError(
            f"{what} would take {needed:,} bytes of memory and the machine has {present:,}; "
            f"{remedy}."
        )


def check_growth(needed: int, path: Path) -> None:
    """Refuse a small file that unpacks to enormous arrays, whatever the machine could hold.

    Args:
        needed: Bytes of the arrays that it declares.
        path: The file.
    """
    size = path.stat().st_size
    if needed > max(SUSPICIOUS, GROWTH * size):
        raise UserError(
            f"The file {str(path)!r} of {size:,} bytes would unpack to {needed:,}, as images do "
            "not; store the images as a folder of files if it is meant so."
        )
