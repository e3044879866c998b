"""What is known about samples beyond pixels and label: a CSV file, matched by the column `id`."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.store.files import read


def read_metadata(path: Path) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """Read a metadata file.

    Returns:
        The names of the columns other than `id`, and for each id its cells in that order.
    """
    table = read_table(path)
    if not table or "id" not in table[0]:
        raise UserError(f"The file {str(path)!r} has no column 'id'; add one with the sample ids.")
    header = table[0]
    for column in header:
        if header.count(column) > 1:
            raise UserError(f"The column {column!r} occurs twice in {str(path)!r}; rename one.")
    key = header.index("id")
    rows: dict[str, tuple[str, ...]] = {}
    for number, cells in enumerate(table[1:], start=2):
        if len(cells) != len(header):
            raise UserError(
                f"Row {number} of {str(path)!r} has {len(cells)} cells, the header has "
                f"{len(header)}; quote cells that contain commas."
            )
        if cells[key] in rows:
            raise UserError(
                f"The id {cells[key]!r} occurs twice in {str(path)!r}; keep one row per sample."
            )
        rows[cells[key]] = (*cells[:key], *cells[key + 1 :])
    return header[:key] + header[key + 1 :], rows


def read_table(path: Path) -> list[list[str]]:
    """The rows of a CSV file, header included, without blank lines and surrounding spaces."""

    def parse(text: str) -> list[list[str]]:
        try:
            # Spreadsheets put a byte-order mark before the first column's name.
            rows = list(
                csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
            )
        except csv.Error as error:
            raise ValueError(str(error)) from None
        return [[cell.strip() for cell in row] for row in rows if any(row)]

    table: list[list[str]] = read(path, parse, "CSV")
    return table
