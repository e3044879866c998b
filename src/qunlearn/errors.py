"""What a user did wrong, said in one sentence that names the value and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class UserError(ValueError):
    """A request that cannot be met as asked.

    The command line prints it as one sentence and exits with code 2; nothing was written.
    """


def others(names: Sequence[str]) -> str:
    """All but the first of some names: how many, and which, as far as they are few.

    >>> others(["a", "b", "c"]), others(["a", "b", "c", "d", "e", "f"])
    ("2 more ('b', 'c')", "5 more ('b', 'c', 'd', ...)")
    """
    shown = ", ".join(map(repr, names[1:4])) + (", ..." if len(names) > 4 else "")
    return f"{len(names) - 1:,} more ({shown})"


def unknown(kind: str, name: object, known: Iterable[str]) -> UserError:
    """The error for a name that is not among the known ones, with the nearest right one.

    >>> print(unknown("quantizer", "lsq++", ["lsq", "lsq+", "pact"]))
    Unknown quantizer 'lsq++': did you mean 'lsq+'? Known are lsq, lsq+, pact.
    """
    names = list(known)
    near = difflib.get_close_matches(str(name), names, n=1)
    if near and len(names) > 12:
        return UserError(f"Unknown {kind} {name!r}: did you mean {near[0]!r}?")
    hint = f": did you mean {near[0]!r}? Known" if near else "; known"
    return UserError(f"Unknown {kind} {name!r}{hint} are {', '.join(names)}.")


class Failure(RuntimeError):
    """Something went wrong on the way; the sentence says what, and what is kept.

    The command line prints it and exits with code 1.
    """
