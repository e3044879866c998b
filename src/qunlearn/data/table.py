"""Reading CSV files with detection of encoding, delimiter and quotes."""

from __future__ import annotations

import codecs
import csv
import re
from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.store.files import read

Rows = list[list[str]]
DELIMITERS = (",", ";", "\t", "|")
MOST_CELLS, MOST_LETTERS = 4_000_000, 1 << 27  # more would take gigabytes
LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")


def decoded(content: bytes) -> str:
    """Text in UTF-8, with or without a byte-order mark, or in UTF-16 with one.

    >>> decoded("a".encode("utf-16")), decoded("a".encode("utf-8-sig"))
    ('a', 'a')
    """
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{error}; save it as UTF-8 text") from None


def read_table(path: Path, column: str) -> tuple[Rows, int | None]:
    """Read a CSV file; its delimiter is the one that makes `column` a cell of the first row.

    Blank rows and spaces around cells are dropped. A row may lack trailing cells.

    Args:
        path: The file.
        column: The name of the column; its case matters only if two names differ in case alone.

    Returns:
        The rows, header first, and the position of the column; None if there is no such column.
    """
    tables = [rows for rows in read(path, readings, "CSV", decoded) if _filled(rows)]
    if not tables:
        return [], None
    matches = [(rows, at) for rows in tables if (at := position(rows[0], column)) is not None]
    if not matches:
        # The reading with the most columns in every row; of several, the most regular one.
        likely = max(tables, key=lambda rows: (min(map(len, rows)), -max(map(len, rows))))
        return _filled(likely), None
    regular = [(rows, at) for rows, at in matches if all(len(row) <= len(rows[0]) for row in rows)]
    columns = [[row[at : at + 1] for row in rows] for rows, at in regular]
    if any(cells != columns[0] for cells in columns):
        raise UserError(
            f"The file {str(path)!r} can be read with several delimiters; put its cells in quotes."
        )
    rows, at = (regular or matches)[0]
    return _filled(rows), at


def _filled(rows: Rows) -> Rows:
    return [row for row in rows if any(row)]


def position(header: list[str], column: str) -> int | None:
    """The position of a column; a unique match that differs only in case counts.

    >>> position(["Note", "ID"], "id"), position(["ID", "id"], "id"), position(["Note"], "id")
    (1, 1, None)
    """
    if column in header:
        return header.index(column)
    folded = [cell.casefold() for cell in header]
    return folded.index(column.casefold()) if folded.count(column.casefold()) == 1 else None


def readings(text: str) -> list[Rows]:
    """The rows of a text for every delimiter with which it is a well-formed table."""
    # Excel can write the delimiter into a separate first line.
    named = re.match(r'"?sep=([^\w\s"]|\t)"?\r?\n', text)
    text = text[named.end() :] if named else text
    present = [each for each in DELIMITERS if each in text]
    # An absent delimiter reads the file as a single column.
    absent = [each for each in DELIMITERS if each not in text][:1]
    delimiters = [named[1]] if named else present + absent
    count = text.count("\n") + text.count("\r")
    # Limits the total over all readings.
    if sum(count + text.count(each) for each in delimiters) > MOST_CELLS:
        raise ValueError(f"it has more than {MOST_CELLS:,} cells")
    if len(text) * len(delimiters) > MOST_LETTERS:
        raise ValueError(f"its cells have more than {MOST_LETTERS:,} characters")
    tables, fault = [], ""
    for delimiter in delimiters:
        lines = (match[0] for match in LINE.finditer(text))
        rows = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)
        try:
            tables.append([[cell.strip() for cell in row] for row in rows if row])
        except csv.Error as error:
            fault = fault or str(error)
    if not tables:
        raise ValueError(fault)
    return tables
