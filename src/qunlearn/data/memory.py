"""How much memory there is, asked before it is taken."""

from __future__ import annotations

import os

from qunlearn.errors import UserError


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
