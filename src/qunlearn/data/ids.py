"""Lists of sample ids, from a file that a person or a program wrote."""

from __future__ import annotations

import json
from pathlib import Path

from qunlearn.data.dataset import first_repeated
from qunlearn.data.metadata import read_table
from qunlearn.errors import UserError
from qunlearn.store.files import read, read_json


def read_ids(path: Path | str) -> list[str]:
    r"""Read sample ids from a CSV, JSON or text file, told apart by the ending of its name.

    CSV: the column `id`, or the only column there is. JSON: a list of ids, or {"ids": [...]}.
    Anything else: one id a line.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "ids.txt"
    >>> _ = path.write_text("train/3\ntrain/14\n")
    >>> read_ids(path)
    ['train/3', 'train/14']
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending == ".json":
        ids = _from_json(path)
    elif ending == ".csv":
        ids = _from_csv(path)
    else:
        lines: list[str] = read(path, lambda text: text.removeprefix("\ufeff").splitlines(), "text")
        ids = [line.strip() for line in lines if line.strip()]
    if not ids:
        raise UserError(f"The file {str(path)!r} lists no ids; put one on each line.")
    repeated = first_repeated(ids)
    if repeated is not None:
        raise UserError(f"The id {repeated!r} is twice in {str(path)!r}; list each sample once.")
    return ids


def _from_csv(path: Path) -> list[str]:
    table = read_table(path)
    if not table:
        return []
    if "id" in table[0]:
        column, rows = table[0].index("id"), table[1:]
    elif len(table[0]) == 1:
        column, rows = 0, table
    else:
        raise UserError(
            f"The file {str(path)!r} has the columns {', '.join(table[0])} but none is called "
            "'id'; name the column of sample ids 'id'."
        )
    for row in rows:
        if len(row) != len(table[0]) or not row[column]:
            raise UserError(f"The row {','.join(row)!r} of {str(path)!r} has no id; complete it.")
    return [row[column] for row in rows]


def _from_json(path: Path) -> list[str]:
    value = read_json(path)
    ids = value.get("ids") if isinstance(value, dict) else value
    if not isinstance(ids, list):
        raise UserError(f'The file {str(path)!r} must hold a list of ids, or {{"ids": [...]}}.')
    for entry in ids:
        if not isinstance(entry, str):
            raise UserError(
                f"The id {json.dumps(entry)} in {str(path)!r} is not text; ids are text, such as "
                '"train/42".'
            )
    return ids
