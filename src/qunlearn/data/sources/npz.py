"""Arrays in an .npz file."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from qunlearn.data.arrays import as_image_data
from qunlearn.data.dataset import ImageData
from qunlearn.data.memory import check_unpacked
from qunlearn.data.sources.registry import SourceOptions, sources
from qunlearn.errors import UserError, unknown

HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
KNOWN = ("x_train", "y_train", "x_test", "y_test", "id_train", "id_test", "classes", "layout")


@sources.register("npz")
def npz(options: SourceOptions) -> ImageData:
    """A file with the arrays x_train and y_train, and perhaps x_test and y_test.

    It may also hold id_train and id_test (the samples' ids), classes (their names) and layout
    (NHW, NHWC or NCHW, where the shape of the images leaves it open).
    """
    path = options.data_dir
    if path is None:
        raise UserError("The data set 'npz' needs a file; name it with --data-dir FILE.npz.")
    arrays = _read(path)
    for name in arrays:
        if name not in KNOWN:
            raise unknown(f"array in {str(path)!r}", name, KNOWN)
    for name in ("x_train", "y_train"):
        if name not in arrays:
            raise UserError(f"The file {str(path)!r} has no array {name!r}; add it.")
    if ("x_test" in arrays) != ("y_test" in arrays):
        raise UserError(f"The file {str(path)!r} has only one of x_test and y_test; add the other.")
    return as_image_data(
        (arrays["x_train"], arrays["y_train"]),
        test=(arrays["x_test"], arrays["y_test"]) if "x_test" in arrays else None,
        name=path.stem,
        layout=str(arrays["layout"]) if "layout" in arrays else None,
        classes=_texts(arrays, "classes"),
        ids=_texts(arrays, "id_train"),
        test_ids=_texts(arrays, "id_test"),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(path) as pack:
            check_unpacked(sum(entry.file_size for entry in pack.infolist()), path)
            for entry in pack.infolist():
                _check_array(pack, entry)
        with np.load(path, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except FileNotFoundError:
        raise UserError(f"There is no file {str(path)!r}; check the path.") from None
    except UserError:
        raise
    except Exception as error:  # readers raise nearly anything on damaged files
        raise UserError(
            f"The file {str(path)!r} is truncated, corrupt or no .npz file of plain arrays "
            f"({error}); write it again with numpy.savez."
        ) from None


def _check_array(pack: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    """Raise unless an entry is an array no larger than itself; asked before memory is taken."""
    with pack.open(entry) as file:
        version = np.lib.format.read_magic(file)
        if version not in HEADERS:
            raise ValueError(f"{entry.filename!r} has the unknown version {version}")
        shape, _, kind = HEADERS[version](file)
    if not kind.hasobject and math.prod(shape) * kind.itemsize > entry.file_size:
        raise ValueError(f"{entry.filename!r} claims {shape} of {kind}, and is smaller than that")


def _texts(arrays: dict[str, Any], name: str) -> list[str] | None:
    if name not in arrays:
        return None
    texts = arrays[name]
    if texts.ndim != 1 or texts.dtype.kind != "U":
        raise UserError(f"The array {name!r} must be a list of texts, not {texts.dtype}.")
    return [str(text) for text in texts]
