"""Arrays in an .npz file, read as a whole or in blocks of rows, so that they may exceed memory."""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from qunlearn.data.memory import check_growth, check_memory
from qunlearn.errors import UserError
from qunlearn.store.files import check_regular

Array = NDArray[Any]
BLOCK = 1 << 22  # bytes per read, unless a row is larger
LOCAL_HEADER = struct.Struct("<4s22xHH")  # of an entry: a signature, the lengths of what follows
HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@dataclass(frozen=True)
class Member:
    """An array in an .npz file, unread: its shape, type and position."""

    path: Path
    entry: zipfile.ZipInfo
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """The size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def row_bytes(self) -> int:
        """The size of an entry along the first axis, in bytes."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def read(self) -> Array:
        """The whole array."""
        with damage_reported(self.path), zipfile.ZipFile(self.path) as pack:
            check_memory(self.size, f"The array {self.entry.filename!r}", "store fewer samples")
            with pack.open(self.entry) as file:
                array: Array = np.lib.format.read_array(file, allow_pickle=False)
                file.read(1)  # at the end of the entry, zipfile verifies its checksum
                return array

    def blocks(self, rows: Sequence[int]) -> Iterator[Array]:
        """The array at these ascending rows, in blocks of bounded size."""
        check_memory(self.row_bytes, f"A row of {self.entry.filename!r}", "divide it into several")
        step = max(1, BLOCK // max(1, self.row_bytes))
        with damage_reported(self.path), zipfile.ZipFile(self.path) as pack:
            whole = len(rows) == self.shape[0]
            with pack.open(self.entry) if whole else self._open(pack) as file:
                HEADERS[np.lib.format.read_magic(file)](file)
                at = 0
                for start in range(0, len(rows), step):
                    wanted = rows[start : start + step]
                    block = bytearray(len(wanted) * self.row_bytes)
                    view = memoryview(block)
                    for number, row in enumerate(wanted):
                        if row > at:
                            file.seek((row - at) * self.row_bytes, 1)
                        _fill(file, view[number * self.row_bytes : (number + 1) * self.row_bytes])
                        at = row + 1
                    shape = (len(wanted), *self.shape[1:])
                    yield np.frombuffer(block, dtype=self.dtype).reshape(shape)
                if whole:
                    file.read(1)  # at the end of the entry, zipfile verifies its checksum

    def _open(self, pack: zipfile.ZipFile) -> IO[bytes]:
        """The entry's bytes; in an uncompressed one, rows can be skipped without reading them."""
        if self.entry.compress_type != zipfile.ZIP_STORED or self.entry.flag_bits & 1:
            return pack.open(self.entry)
        pack.open(self.entry).close()  # which checks the header
        file = self.path.open("rb")
        file.seek(self.entry.header_offset)
        _, name, extra = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
        file.seek(name + extra, 1)
        return file


def members(path: Path) -> dict[str, Member]:
    """The arrays that a file declares; none is larger than its entry."""
    check_regular(path)
    with damage_reported(path), zipfile.ZipFile(path) as pack:
        check_growth(sum(entry.file_size for entry in pack.infolist()), path)
        arrays = {}
        for entry in pack.infolist():
            with pack.open(entry) as file:
                version = np.lib.format.read_magic(file)
                if version not in HEADERS:
                    raise ValueError(f"{entry.filename!r} has the unknown version {version}")
                shape, fortran, kind = HEADERS[version](file)
                head = file.tell()
            if kind.hasobject:
                raise ValueError(f"{entry.filename!r} holds objects")
            if head + math.prod(shape) * kind.itemsize > entry.file_size:
                raise ValueError(
                    f"{entry.filename!r} claims {shape} of {kind}, and is smaller than that"
                )
            name = entry.filename.removesuffix(".npy")
            arrays[name] = Member(path, entry, shape, fortran, kind)
        return arrays


@contextmanager
def damage_reported(path: Path) -> Iterator[None]:
    """Whatever the reader of zip files raises, as a `UserError` about the file."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"There is no file {str(path)!r}; check the path.") from None
    except UserError:
        raise
    except Exception as error:  # readers raise nearly anything on damaged files
        raise UserError(
            f"The file {str(path)!r} is truncated, corrupt or no .npz file of plain arrays "
            f"({error}); write it again with numpy.savez."
        ) from None


def _fill(file: IO[bytes], view: memoryview) -> None:
    while len(view):
        count = file.readinto(view)  # type: ignore[attr-defined]
        if not count:
            raise ValueError("it ends early")
        view = view[count:]
