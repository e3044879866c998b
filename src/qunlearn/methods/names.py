"""The present names of methods in run folders that earlier versions made."""

from __future__ import annotations

RENAMED = {"oeu-paper": "oeu"}
"""Names that were dropped, and what they are called now."""


def made_by(method: str | None, revision: int = 1) -> str | None:
    """The method that made a run, by its present name; None for a run that has forgotten nothing.

    Until revision 4, `oeu` was the name of the calibrated method, and `oeu-paper` of OEU.

    >>> made_by("oeu", revision=4), made_by("oeu", revision=5)
    ('calibrated', 'oeu')
    """
    if method == "oeu" and revision <= 4:
        return "calibrated"
    return None if method is None else RENAMED.get(method, method)
