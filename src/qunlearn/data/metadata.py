"""Metadata of samples from a CSV file, matched by the column `id`."""

from __future__ import annotations

from pathlib import Path

from qunlearn.characters import check_names
from qunlearn.data.table import read_table
from qunlearn.errors import UserError


def read_metadata(path: Path) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """Read a metadata file.

    Returns:
        The names of the columns other than `id`, and for each id its cells in that order.
    """
    table, key = read_table(path, "id")
    if key is None:
        raise UserError(f"The file {str(path)!r} has no column 'id'; add one with the sample ids.")
    header = table[0]
    check_names(header, "column name", f"rename the column of {str(path)!r}")
    for row in table[1:]:
        check_names(row, "cell", f"correct {str(path)!r}", lines=True)
    for column in header:
        if header.count(column) > 1:
            raise UserError(f"The column {column!r} occurs twice in {str(path)!r}; rename one.")
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
