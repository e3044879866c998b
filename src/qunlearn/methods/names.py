"""What a run was made by, whatever the method was called then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RENAMED = {"oeu-paper": "oeu"}
"""Names that were dropped, and what they are called now."""


def made_by(info: Mapping[str, Any]) -> str | None:
    """The method that made a run, by its present name; None for a run that has forgotten nothing.

    Until revision 4, `oeu` was the name of the calibrated method, and `oeu-paper` of OEU.

    >>> made_by({"method": "oeu", "revision": 4}), made_by({"method": "oeu", "revision": 5})
    ('calibrated', 'oeu')
    """
    name = info.get("method")
    if name is None:
        return None
    if name == "oeu" and info.get("revision", 1) <= 4:
        return "calibrated"
    return RENAMED.get(str(name), str(name))
