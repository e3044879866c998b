"""Reading lists of sample ids from CSV, JSON or text files."""

from __future__ import annotations

import json
from pathlib import Path

from qunlearn.characters import check_names
from qunlearn.data.table import decoded, read_table
from qunlearn.errors import UserError
from qunlearn.store.files import read
from qunlearn.store.limits import parse_json

COLUMN = "id"


def read_ids(path: Path | str, column: str | None = None) -> list[str]:
    r"""Read sample ids from a CSV, JSON or text file, distinguished by its suffix.

    CSV (also .tsv, or any file with tabs, or when a column is named): the column `id`, or the only
    column there is; separated by commas, semicolons, tabs or bars. JSON: a list of ids, or
    {"ids": [...]}. Anything else: one id a line. Files are UTF-8, or UTF-16 with a byte-order mark.

    Args:
        path: The file.
        column: The name of the column, if it is not `id`.

    Returns:
        The ids as they are listed, repeated ones too.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "ids.txt"
    >>> _ = path.write_text("train/3\ntrain/14\n")
    >>> read_ids(path)
    ['train/3', 'train/14']
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending == ".json":
        if column is not None:
            raise UserError(
                f"The file {str(path)!r} is JSON and has no columns; leave out --column."
            )
        ids = _from_json(path)
    elif column is not None or ending in (".csv", ".tsv"):
        ids = _from_table(path, column)
    else:
        text: str = read(path, str, "text", decoded)
        # No id has a tab in it: with one this is a table, such as Excel's "Unicode text".
        ids = _from_table(path, None) if "\t" in text.strip() else _from_lines(text)
    if not ids:
        raise UserError(f"The file {str(path)!r} lists no ids; put one on each line.")
    check_names(ids, "id", f"correct the list {str(path)!r}")
    return ids


def _from_lines(text: str) -> list[str]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[1:] if lines[:1] == [COLUMN] else lines


def _from_table(path: Path, column: str | None) -> list[str]:
    rows, at = read_table(path, column or COLUMN)
    if not rows:
        return []
    header = rows[0]
    if at is None and (column is not None or len(header) > 1):
        columns = ", ".join(map(repr, header[:10]))
        raise UserError(
            f"The file {str(path)!r} has the columns {columns} but no {column or COLUMN!r}; name "
            f"the column of sample ids with --column NAME, or call it {COLUMN!r}."
        )
    if at is None:
        return [row[0] for row in rows]
    for number, row in enumerate(rows[1:], start=2):
        if not at < len(row) <= len(header) or not row[at]:
            raise UserError(
                f"Row {number} of {str(path)!r}, {row}, has no id, or more cells than the header; "
                "complete it, and put cells with a delimiter in quotes."
            )
    return [row[at] for row in rows[1:]]


def _from_json(path: Path) -> list[str]:
    value = read(path, parse_json, "JSON", decoded)
    ids = value.get("ids") if isinstance(value, dict) else value
    if not isinstance(ids, list):
        raise UserError(f'The file {str(path)!r} must contain a list of ids, or {{"ids": [...]}}.')
    for entry in ids:
        if not isinstance(entry, str):
            raise UserError(
                f"The id {json.dumps(entry)} in {str(path)!r} is not a string; ids are strings, "
                'such as "train/42".'
            )
    return ids
