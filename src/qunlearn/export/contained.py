"""Whether an ONNX file holds all that it needs: asked before a runtime sees it.

A tensor may be said to lie in another file, anywhere below the working folder. A runtime would read
that file, and its content could be told from the outputs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qunlearn.errors import UserError
from qunlearn.export.extra import needed

LARGEST = 1 << 29
"""Bytes of an ONNX file; it is held in memory several times."""


def read_model(path: Path) -> bytes:
    """The content of an ONNX file: a regular one, of bounded size."""
    try:
        # A pipe would keep us waiting for whoever writes to it.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise UserError(f"{str(path)!r} is no regular file; name an ONNX file.")
            content = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"The file {str(path)!r} cannot be read: {reason}; check the path."
        ) from None
    if len(content) > LARGEST:
        raise UserError(
            f"The file {str(path)!r} has more than {LARGEST:,} bytes, and is not read; name a "
            "smaller one."
        )
    return content


def check_contained(content: bytes, name: str) -> None:
    """Raise unless every tensor of an ONNX file is in the file itself, wherever it is used."""
    onnx = needed("onnx")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except Exception as error:  # protobuf's own class, which depends on how it was built
        raise UserError(
            f"{name!r} is not an ONNX file ({type(error).__name__}); name one that "
            "`qunlearn export` wrote."
        ) from None
    for message in _messages(model):
        external = message.DESCRIPTOR.name == "TensorProto" and (
            message.data_location == onnx.TensorProto.EXTERNAL or len(message.external_data)
        )
        if external:
            raise UserError(
                f"{name!r} keeps a tensor, {message.name[:80]!r}, in another file, which is not "
                "read; name a file that `qunlearn export` wrote."
            )


def _messages(message: Any) -> Iterator[Any]:
    """A protobuf message and all that are in it."""
    left = [message]
    while left:
        found = left.pop()
        yield found
        for field, value in found.ListFields():
            if field.message_type is not None:
                left += [value] if hasattr(value, "ListFields") else value
