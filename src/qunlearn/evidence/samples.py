"""Erasing samples from the data: the rows of an .npz file, or the files of an image folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from qunlearn.data.sources.folder import files_of
from qunlearn.data.sources.zipped import members
from qunlearn.errors import UserError
from qunlearn.store.arrays import write_arrays
from qunlearn.store.place import FILE, kind_of


def drop_rows(
    path: Path,
    ids: frozenset[str],
    target: Path | None = None,
    alias: Callable[[str], str] = str,
) -> int:
    """Rewrite an .npz file without these samples; returns how many there were.

    The others keep their ids: where the file has none, they are added. `alias` says what a sample
    is called in `ids`.
    """
    arrays = {name: member.read() for name, member in members(path).items()}
    dropped = 0
    for part in ("train", "test"):
        if f"y_{part}" not in arrays:
            continue
        count = len(arrays[f"y_{part}"])
        usual = np.array([f"{part}/{row}" for row in range(count)], dtype=str)
        names = arrays.get(f"id_{part}", usual)
        kept = np.array([alias(str(name)) not in ids for name in names], dtype=bool)
        dropped += int((~kept).sum())
        pair = (f"x_{part}", f"y_{part}")
        columns = [n for n in arrays if n in pair or n.startswith(f"meta_{part}_")]
        arrays |= {name: arrays[name][kept] for name in columns}
        arrays[f"id_{part}"] = names[kept]
    if dropped or target is not None:
        write_arrays(target or path, arrays)
    return dropped


def sample_files(
    folder: Path, ids: frozenset[str], alias: Callable[[str], str] = str
) -> list[Path]:
    """The image files of these samples in a folder of images."""
    return [path for name, path in files_of(folder).items() if alias(name) in ids]


def check_data(path: Path) -> None:
    """Raise unless samples can be erased from what is at a path."""
    if path.is_dir():
        files_of(path)
    elif kind_of(path) != FILE or path.suffix.lower() != ".npz":
        raise UserError(
            f"Samples cannot be erased from {str(path)!r}: name an .npz file or a folder of images "
            "with --data, or erase them there yourself."
        )
