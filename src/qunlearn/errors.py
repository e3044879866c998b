"""What a user did wrong, said in one sentence that names the value and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A request that cannot be met as asked.

    The command line prints it as one sentence and exits with code 2; nothing was written.
    """


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
