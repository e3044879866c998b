"""Arrays on disk, in numpy's .npz format without pickled objects."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from qunlearn.store.files import replacing, writing

if TYPE_CHECKING:
    from numpy.typing import NDArray


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write named arrays to an .npz file, atomically; mapped ones are not read into memory."""
    with writing(path), replacing(path) as file:
        _write_npz(file, arrays)


def npz_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The content of an .npz file with these arrays."""
    content = io.BytesIO()
    _write_npz(content, arrays)
    return content.getvalue()


def _write_npz(file: IO[bytes], arrays: Mapping[str, NDArray[Any]]) -> None:
    import numpy as np

    with zipfile.ZipFile(file, "w") as pack:
        for name, array in arrays.items():
            with pack.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)
