"""Rules on metadata, such as `user == 42 and camera in [front, rear]`; parsed without `eval`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from qunlearn.errors import UserError

Number = int | float
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
DEPTH = 50  # nested parentheses; far below Python's recursion limit
_NUMBER = re.compile(r"[+-]?(\d{1,300}(\.\d{0,300})?|\.\d{1,300})([eE][+-]?\d{1,3})?")
_TOKEN = re.compile(
    r"""\s*(?:(?P<sign>==|!=|<=|>=|[<>()\[\],])
        |(?P<quoted>"[^"]*"|'[^']*')
        |(?P<word>[^\s()\[\],<>=!"']+))""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Comparison:
    """A comparison of a column with a value; `in` becomes several == joined by `or`."""

    column: str
    sign: str
    value: str | Number

    def columns(self) -> frozenset[str]:
        """The columns that the rule uses."""
        return frozenset([self.column])

    def comparisons(self) -> list[Comparison]:
        """Itself."""
        return [self]

    def matches(self, row: Mapping[str, str]) -> bool:
        """Whether a sample with these cells is meant."""
        cell, value = row[self.column], self.value
        if isinstance(value, str):
            # An empty cell is unknown: only a comparison with "" matches it.
            return (cell != "" or value == "") and COMPARE[self.sign](cell, value)
        number = as_number(cell)
        if number is None:
            return self.sign == "!=" and cell != ""
        return COMPARE[self.sign](number, value)


@dataclass(frozen=True)
class Joined:
    """Rules joined by `and`, or by `or`."""

    any_of: bool
    rules: tuple[Rule, ...]

    def columns(self) -> frozenset[str]:
        """The columns that the rules use."""
        return frozenset().union(*(rule.columns() for rule in self.rules))

    def comparisons(self) -> list[Comparison]:
        """Every comparison in them."""
        return [each for rule in self.rules for each in rule.comparisons()]

    def matches(self, row: Mapping[str, str]) -> bool:
        """Whether a sample with these cells is meant."""
        return (any if self.any_of else all)(rule.matches(row) for rule in self.rules)


Rule = Comparison | Joined


def parse_rule(text: str) -> Rule:
    """Parse a rule.

    A rule is `column sign value` with the signs ==, !=, <, <=, > and >=, or `column in [a, b]`,
    joined by `and` and `or` (`and` binds closer) and parentheses. A bare number is compared as a
    number, anything quoted and any other word as text, so dates like 2024-05-01 sort correctly.
    A sample whose cell is empty matches only a comparison with "".

    >>> rule = parse_rule("user == 42 and (camera in [front, rear] or year < 2020)")
    >>> rule.matches({"user": "42", "camera": "rear", "year": "2024"})
    True
    >>> rule.matches({"user": "42", "camera": "top", "year": ""})
    False
    """
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str):
        self.text = text
        self.tokens = self._split()
        self.at = 0
        self.depth = 0

    def parse(self) -> Rule:
        rule = self._either()
        if self._peek() is not None:
            raise self._wrong("'and', 'or' or the end")
        return rule

    def _either(self) -> Rule:
        return self._chain("or", self._all)

    def _all(self) -> Rule:
        return self._chain("and", self._one)

    def _chain(self, word: str, part: Callable[[], Rule]) -> Rule:
        rules = [part()]
        while self._take(word):
            rules.append(part())
        return rules[0] if len(rules) == 1 else Joined(word == "or", tuple(rules))

    def _one(self) -> Rule:
        if self._take("("):
            self.depth += 1
            if self.depth > DEPTH:
                raise UserError(f"The rule has more than {DEPTH} nested parentheses; simplify it.")
            rule = self._either()
            if not self._take(")"):
                raise self._wrong("')'")
            self.depth -= 1
            return rule
        column = str(self._value("a column name", number=False))
        if self._take("in"):
            return self._list(column)
        sign = self._peek()
        if sign is None or sign[0] not in COMPARE:
            raise self._wrong("==, !=, <, <=, >, >= or in")
        self.at += 1
        return Comparison(column, sign[0], self._value("a value"))

    def _list(self, column: str) -> Rule:
        if not self._take("["):
            raise self._wrong("'['")
        values = [self._value("a value")]
        while self._take(","):
            values.append(self._value("a value"))
        if not self._take("]"):
            raise self._wrong("',' or ']'")
        return Joined(True, tuple(Comparison(column, "==", value) for value in values))

    def _value(self, what: str, number: bool = True) -> str | Number:
        token = self._peek()
        if token is None or (token[1] == "sign") or (token[1] == "word" and token[0] in _RESERVED):
            raise self._wrong(what)
        self.at += 1
        if token[1] == "quoted":
            return token[0][1:-1]
        value = as_number(token[0]) if number else None
        return token[0] if value is None else value

    def _take(self, text: str) -> bool:
        token = self._peek()
        if token is None or token[1] == "quoted" or token[0] != text:
            return False
        self.at += 1
        return True

    def _peek(self) -> tuple[str, str, int] | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def _split(self) -> list[tuple[str, str, int]]:
        tokens, at, end = [], 0, len(self.text.rstrip())
        while at < end:
            match = _TOKEN.match(self.text, at)
            if match is None or match.lastgroup is None:
                rest = self.text[at:].lstrip()
                hint = "; equality is written ==" if rest.startswith("=") else ""
                # The rule itself may name a person, and messages end up in logs.
                place = len(self.text) - len(rest) + 1
                raise UserError(f"The rule cannot be read at position {place}{hint}.")
            tokens.append((match[match.lastgroup], match.lastgroup, match.start(match.lastgroup)))
            at = match.end()
        return tokens

    def _wrong(self, expected: str) -> UserError:
        token = self._peek()
        actual = "the rule ends" if token is None else "something else stands there"
        if token is not None and (token[1] == "sign" or token[0] in _RESERVED):
            actual = f"there is {token[0]!r}"
        place = len(self.text) if token is None else token[2]
        return UserError(
            f"The rule cannot be read: at position {place + 1}, {expected} is expected but "
            f"{actual}; an example is: user == 42 and camera in [front, rear]."
        )


_RESERVED = frozenset(["and", "or", "in"])


def as_number(text: str) -> Number | None:
    """Parse a cell or a bare word as a number; None if it is not one."""
    if not _NUMBER.fullmatch(text):
        return None
    # Integers stay exact: account numbers may exceed the precision of a float.
    return int(text) if text.lstrip("+-").isdigit() else float(text)
