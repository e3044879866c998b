"""Unsafe characters: terminal control codes and text-direction overrides."""

from __future__ import annotations

import re
from collections.abc import Collection

from qunlearn.errors import UserError

# Control characters (except tab and newline), direction marks and overrides, line separators,
# unpaired surrogates, and invisible tag characters.
_UNSAFE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
)
UNSAFE = re.compile(f"[{_UNSAFE}]")
UNSAFE_IN_NAMES = re.compile(f"[{_UNSAFE}\t\n]")


def plain(text: str) -> str:
    r"""Replace every unsafe character by U+FFFD.

    >>> plain("a\x1b[2Jb\u202ec\nd")
    'a�[2Jb�c\nd'
    """
    return UNSAFE.sub("\ufffd", text)


def check_names(names: Collection[str], what: str, remedy: str, lines: bool = False) -> None:
    r"""Raise if a name has unsafe characters; `lines` allows tabs and line breaks.

    >>> check_names(["cat", "d\x1b[2Jog"], "class name", "rename it")
    Traceback (most recent call last):
    qunlearn.errors.UserError: The class name 'd\x1b[2Jog' has control characters; rename it.
    """
    unsafe = UNSAFE if lines else UNSAFE_IN_NAMES
    if unsafe.search("".join(names)):
        invalid = next(name for name in names if unsafe.search(name))
        raise UserError(f"The {what} {invalid!a} has control characters; {remedy}.")
