"""Several requests in one go: a CSV file with an id or a rule on each row, and whose it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import torch

from qunlearn.data import Split
from qunlearn.data.choose import matching
from qunlearn.data.dataset import first_repeated
from qunlearn.data.table import position, read_table
from qunlearn.errors import UserError
from qunlearn.runs.lines import RequestLine

COLUMNS = ("id", "rule", "received", "reference")
LONGEST = 100
"""Maximum number of characters of a reference."""


@dataclass(frozen=True)
class Row:
    """A row of the file: an id or a rule, when it was received, and what it is called."""

    number: int
    id: str
    rule: str
    received: str | None
    reference: str | None


def checked_day(text: str, name: str) -> str:
    """A day in ISO 8601, not in the future."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise UserError(f"{name} = {text!r} is not a date; write it as 2026-11-18.") from None
    if day > datetime.now(UTC).date():
        raise UserError(f"{name} = {text!r} is in the future; check the year and the month.")
    return day.isoformat()


def checked_reference(text: str, name: str) -> str:
    """What a request is called: a line that tables and pages can show."""
    if not text.strip() or not text.isprintable() or len(text) > LONGEST:
        raise UserError(
            f"{name} = {text[:LONGEST]!r} is not a reference; write one line of at most {LONGEST} "
            "characters, such as REQ-17."
        )
    return text


def read_requests(path: Path) -> list[Row]:
    """The rows of a file of requests."""
    for column in ("id", "rule"):
        rows, at = read_table(path, column)
        if at is not None:
            break
    else:
        raise UserError(
            f"The file {str(path)!r} has no column 'id' or 'rule'; its columns are id or rule, "
            "received and reference."
        )
    header = rows[0]
    twice = first_repeated(name for name in header if name in COLUMNS)
    if twice is not None:
        raise UserError(f"The file {str(path)!r} has the column {twice!r} twice; remove one.")
    places = {name: position(header, name) for name in COLUMNS}
    requests = [_row(number, row, places, path) for number, row in enumerate(rows[1:], start=2)]
    if not requests:
        raise UserError(f"The file {str(path)!r} lists no requests; put one on each row.")
    return requests


def _row(number: int, cells: list[str], places: Mapping[str, int | None], path: Path) -> Row:
    values = {
        name: cells[at] if at is not None and at < len(cells) else "" for name, at in places.items()
    }
    where = f"row {number} of {str(path)!r}"
    if bool(values["id"]) == bool(values["rule"]):
        raise UserError(f"In {where} there must be an id or a rule, and not both; complete it.")
    received = (
        checked_day(values["received"], f"In {where}, received") if values["received"] else ""
    )
    reference = values["reference"] and checked_reference(
        values["reference"], f"In {where}, reference"
    )
    return Row(number, values["id"], values["rule"], received or None, reference or None)


def with_requests_of(split: Split, path: Path) -> tuple[Split, tuple[RequestLine, ...]]:
    """The split with all requests of a file as one, and a line for each of them.

    Rows of one reference and day are one request. A sample that two requests name counts in both.
    """
    rows = read_requests(path)
    usable = torch.cat([split.retain, split.held_out, split.test])
    lines: dict[tuple[str | None, str | None], dict[str, None]] = {}
    for number, row in enumerate(rows):
        names = [row.id] if row.id else _matched(split, row, usable, path)
        key = (row.reference or f"request {number + 1}", row.received)
        lines.setdefault(key, {}).update(dict.fromkeys(names))
    every = dict.fromkeys(name for names in lines.values() for name in names)
    counted = tuple(RequestLine(len(names), *key) for key, names in lines.items())
    return split.forget_ids(list(every)), counted


def _matched(split: Split, row: Row, usable: torch.Tensor, path: Path) -> list[str]:
    ids = [split.data.ids[at] for at in matching(split.data, row.rule, usable)]
    if not ids:
        raise UserError(
            f"The rule in row {row.number} of {str(path)!r} matches no sample that is in use; "
            "correct it, or remove the row."
        )
    return ids
