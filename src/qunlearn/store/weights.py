"""Tensors on disk, as safetensors, which cannot contain code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from qunlearn.errors import UserError
from qunlearn.store.files import reading, write_bytes
from qunlearn.store.limits import LARGEST, MOST_TENSORS, check_count, parse_json

KEY = "qunlearn"
HINT = "restore the file from a copy, or repeat the run"


def write_weights(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write tensors and a header, atomically; equal content gives equal bytes."""
    # Copies, because safetensors refuses tensors that share memory, such as tied weights.
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    # One key, because safetensors writes several keys in arbitrary order. `save_file` would leave a
    # temporary file behind if the process is killed.
    write_bytes(path, save(plain, metadata={KEY: json.dumps(header)}))


def read_header(path: Path) -> dict[str, Any]:
    """Read the header of a file that qunlearn wrote."""
    with _opened(path) as file:
        text = (file.metadata() or {}).get(KEY)
    if text is None:
        raise UserError(
            f"The file {str(path)!r} was not written by qunlearn; for a model trained elsewhere "
            "use `qunlearn adopt`."
        )
    try:
        header = parse_json(text)
        if not isinstance(header, dict):
            raise ValueError
    except (ValueError, RecursionError):
        raise UserError(f"The header of {str(path)!r} is damaged; {HINT}.") from None
    return header


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a safetensors file."""
    with _opened(path) as file:
        try:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, ValueError, TypeError, RuntimeError) as error:
            raise UserError(f"The file {str(path)!r} is damaged ({error}); {HINT}.") from None


def _opened(path: Path) -> safe_open:
    _check_header(path)
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise _corrupt(path, error) from None


def _check_header(path: Path) -> None:
    """Raise, before parsing, if a header is too large or names too many tensors."""
    with reading(path) as file:
        size = int.from_bytes(file.read(8), "little")
        if size > LARGEST["header"]:
            raise _corrupt(path, f"its header claims {size:,} bytes")
        header = file.read(size)
    try:
        check_count(header.count(b"{"), "tensors", MOST_TENSORS)
        check_count(header.count(b","), "values")  # a shape may have any number of dimensions
    except ValueError as error:
        raise _corrupt(path, error) from None


def _corrupt(path: Path, reason: object) -> UserError:
    return UserError(
        f"The file {str(path)!r} is not an intact safetensors file ({reason}): {HINT}. Convert a "
        "pickled checkpoint with safetensors.torch.save_file."
    )
