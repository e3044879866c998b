"""Arrays on disk, in numpy's .npz format without pickled objects."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qunlearn.store.files import write_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write named arrays to an .npz file, atomically."""
    import numpy as np

    content = io.BytesIO()
    np.savez(content, **dict(arrays))  # type: ignore[arg-type]
    write_bytes(path, content.getvalue())
