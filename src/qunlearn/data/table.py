"""Tables as people and spreadsheets write them: encoding, delimiter and quotes are found out."""

from __future__ import annotations

import codecs
import csv
import re
from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.store.files import read

Rows = list[list[str]]
DELIMITERS = (",", ";", "\t", "|")
MOST_CELLS, MOST_LETTERS = 4_000_000, 1 << 27  # beyond, a small file would take gigabytes
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

    Blank rows, and spaces around cells, are left out. A row may lack cells at its end.

    Args:
        path: The file.
        column: The column that is looked for, with regard to case only if there are two.

    Returns:
        The rows, header first, and the position of the column; None if no column is called so.
    """
    tables = [rows for rows in read(path, readings, "CSV", decoded) if _filled(rows)]
    if not tables:
        return [], None
    found = [(rows, at) for rows in tables if (at := position(rows[0], column)) is not None]
    if not found:
        # With as many columns as all rows have; of several such readings the most regular one.
        likely = max(tables, key=lambda rows: (min(map(len, rows)), -max(map(len, rows))))
        return _filled(likely), None
    whole = [(rows, at) for rows, at in found if all(len(row) <= len(rows[0]) for row in rows)]
    columns = [[row[at : at + 1] for row in rows] for rows, at in whole]
    if any(cells != columns[0] for cells in columns):
        raise UserError(
            f"The file {str(path)!r} can be read with several delimiters; put its cells in quotes."
        )
    rows, at = (whole or found)[0]
    return _filled(rows), at


def _filled(rows: Rows) -> Rows:
    return [row for row in rows if any(row)]


def position(header: list[str], column: str) -> int | None:
    """Where a column is; one that differs in case alone will do.

    >>> position(["Note", "ID"], "id"), position(["ID", "id"], "id"), position(["Note"], "id")
    (1, 1, None)
    """
    if column in header:
        return header.index(column)
    folded = [cell.casefold() for cell in header]
    return folded.index(column.casefold()) if folded.count(column.casefold()) == 1 else None


def readings(text: str) -> list[Rows]:
    """The rows of a text for every delimiter with which it is a well-formed table."""
    # Excel writes the delimiter into a first line of its own, if asked to.
    named = re.match(r'"?sep=([^\w\s"]|\t)"?\r?\n', text)
    text = text[named.end() :] if named else text
    present = [mark for mark in DELIMITERS if mark in text]
    # One that does not occur reads a single column, whatever is in its cells.
    absent = [mark for mark in DELIMITERS if mark not in text][:1]
    marks = [named[1]] if named else present + absent
    count = text.count("\n") + text.count("\r")
    # Each reading has cells of its own.
    if sum(count + text.count(mark) for mark in marks) > MOST_CELLS:
        raise ValueError(f"it has more than {MOST_CELLS:,} cells")
    if len(text) * len(marks) > MOST_LETTERS:
        raise ValueError(f"its cells have more than {MOST_LETTERS:,} letters")
    tables, fault = [], ""
    for delimiter in marks:
        lines = (found[0] for found in LINE.finditer(text))
        rows = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)
        try:
            tables.append([[cell.strip() for cell in row] for row in rows if row])
        except csv.Error as error:
            fault = fault or str(error)
    if not tables:
        raise ValueError(fault)
    return tables
