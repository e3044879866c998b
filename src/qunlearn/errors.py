"""Exceptions whose message names the wrong value and says what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class UserError(ValueError):
    """Invalid input: a wrong setting, path, file or argument.

    The command line prints the message and exits with code 2; nothing was written.
    """


def others(names: Sequence[str]) -> str:
    """Summarise all names but the first: their number and up to three examples.

    >>> others(["a", "b", "c"]), others(["a", "b", "c", "d", "e", "f"])
    ("2 more ('b', 'c')", "5 more ('b', 'c', 'd', ...)")
    """
    shown = ", ".join(map(repr, names[1:4])) + (", ..." if len(names) > 4 else "")
    return f"{len(names) - 1:,} more ({shown})"


def unknown(kind: str, name: object, known: Iterable[str]) -> UserError:
    """The error for an unknown name; it suggests the closest known name.

    >>> print(unknown("quantizer", "lsq++", ["lsq", "lsq+", "pact"]))
    Unknown quantizer 'lsq++': did you mean 'lsq+'? Known are lsq, lsq+, pact.
    """
    names = list(known)
    matches = difflib.get_close_matches(str(name), names, n=1)
    if matches and len(names) > 12:
        return UserError(f"Unknown {kind} {name!r}: did you mean {matches[0]!r}?")
    hint = f": did you mean {matches[0]!r}? Known" if matches else "; known"
    return UserError(f"Unknown {kind} {name!r}{hint} are {', '.join(names)}.")


class Failure(RuntimeError):
    """A valid request failed while it ran; the message says why, and what was saved.

    The command line prints the message and exits with code 1.
    """


def lacks_memory(error: Exception) -> bool:
    """Whether Python, or torch on a processor or a GPU, could not get the memory it wanted."""
    message = isinstance(error, RuntimeError) and str(error)
    return isinstance(error, MemoryError) or bool(
        message and ("can't allocate memory" in message or "out of memory" in message)
    )
