"""Checks that an ONNX file is self-contained, before a runtime loads it.

A tensor may refer to another file, anywhere below the working folder. A runtime would read that
file, and its content could be inferred from the outputs.
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
"""Maximum bytes of an ONNX file; it is held in memory several times."""


def read_model(path: Path) -> bytes:
    """The content of an ONNX file: a regular one, of bounded size."""
    try:
        # Non-blocking, because a pipe would wait for a writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise UserError(f"{str(path)!r} is not a regular file; name an ONNX file.")
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
            f"The file {str(path)!r} has more than {LARGEST:,} bytes, the limit for such "
            "files; name a smaller one."
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
                f"{name!r} refers to another file for the tensor {message.name[:80]!r}, which is "
                "not allowed; name a file that `qunlearn export` wrote."
            )


def _messages(message: Any) -> Iterator[Any]:
    """A protobuf message and all nested messages."""
    pending = [message]
    while pending:
        current = pending.pop()
        yield current
        for field, value in current.ListFields():
            if field.message_type is not None:
                pending += [value] if hasattr(value, "ListFields") else value
