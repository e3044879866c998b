"""Arrays on disk, as numpy's .npz: nothing in such a file can run code."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qunlearn.store.files import write_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays by their names, atomically."""
    import numpy as np

    content = io.BytesIO()
    np.savez(content, **dict(arrays))  # type: ignore[arg-type]
    write_bytes(path, content.getvalue())
