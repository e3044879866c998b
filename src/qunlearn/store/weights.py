"""Tensors on disk, as safetensors: nothing in such a file can run code."""

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
HINT = "restore the file from a copy, or make the run again"


def write_weights(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write tensors and a header, atomically; equal contents give equal bytes."""
    # Copies, because safetensors refuses tensors that share memory, as tied weights do.
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    # Under one key, because safetensors writes several keys in no particular order. Not by its
    # save_file, which leaves a file with a name of its own if it is killed.
    write_bytes(path, save(plain, metadata={KEY: json.dumps(header)}))


def read_header(path: Path) -> dict[str, Any]:
    """The header of a model that qunlearn wrote."""
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
    """All tensors of a safetensors file."""
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
        raise _not_whole(path, error) from None


def _check_header(path: Path) -> None:
    """Raise if a header is larger, or names more tensors, than any of ours: before it is parsed."""
    with reading(path) as file:
        size = int.from_bytes(file.read(8), "little")
        if size > LARGEST["header"]:
            raise _not_whole(path, f"its header claims {size:,} bytes")
        header = file.read(size)
    try:
        check_count(header.count(b"{"), "tensors", MOST_TENSORS)
        check_count(header.count(b","), "values")  # a shape may have any number of them
    except ValueError as error:
        raise _not_whole(path, error) from None


def _not_whole(path: Path, reason: object) -> UserError:
    return UserError(
        f"The file {str(path)!r} is not a whole safetensors file ({reason}): {HINT}; a pickled "
        "checkpoint must be saved anew with safetensors.torch.save_file."
    )
