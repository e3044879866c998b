"""Files that travel between machines as bytes: packed there, checked and written here.

What is unpacked appears under its name only once it is complete: a folder is filled under a
temporary name and renamed, and a run gets its `run.json` last.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from qunlearn.errors import Failure, UserError
from qunlearn.store.checksums import parse_checksums
from qunlearn.store.files import UNDER_WAY, reading, write_bytes, writing
from qunlearn.store.layout import CHECKSUMS, INFO, KEY, PARTS
from qunlearn.store.place import opened
from qunlearn.store.run import Run

Files = Mapping[str, bytes]
"""The content of files by name; no name is a path."""

MOST_BYTES = 8 << 30
"""Maximum size of a parcel; larger data are mounted on each node instead."""


def pack_run(path: Path) -> dict[str, bytes]:
    """The files of a complete run, each compared with its checksum."""
    run, packed = Run.open(path), {}
    sums = run.checksums
    for name in (*PARTS, KEY):
        if (path / name).is_file():
            packed[name] = pack_file(path / name)
            if sums.get(name, digest := _sha256(packed[name])) != digest:
                raise UserError(
                    f"The file {str(path / name)!r} has changed since the run was finished: its "
                    "checksum does not match. Restore it from a copy, or repeat the run."
                )
    return packed


def pack_file(path: Path) -> bytes:
    """The content of a file of bounded size."""
    with reading(path) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UserError(
            f"The file {str(path)!r} has more than {MOST_BYTES:,} bytes, which is too much to send "
            "to a node; mount it there."
        )
    return content


def unpack_run(path: Path, files: Files) -> None:
    """Write a complete run that was made elsewhere; what was begun at `path` is replaced.

    Refused as a whole if a file is missing, foreign, or differs from its checksum.
    """
    problem = _misfit(files)
    if problem:
        raise Failure(f"The run that a node sent for {str(path)!r} is refused: {problem}.")
    Run.discard(path, finished=True)
    Run.create(path)
    for name in (KEY, *PARTS):  # the last one makes it complete
        if name in files:
            write_bytes(path / name, files[name], 0o600 if name == KEY else 0o666)


def _misfit(files: Files) -> str:
    """Why some files are no complete run; nothing if they are one."""
    foreign = [name for name in files if name not in (*PARTS, KEY)]
    if foreign:
        return f"{foreign[0]!r} is no file of a run"
    if INFO not in files or CHECKSUMS not in files:
        return "it is not complete"
    if sum(map(len, files.values())) > MOST_BYTES:
        return f"it has more than {MOST_BYTES:,} bytes"
    try:
        sums = parse_checksums(files[CHECKSUMS].decode())
    except ValueError as error:
        return f"its checksums are invalid ({error})"
    for name in PARTS:
        if name != CHECKSUMS and (name in files) != (name in sums):
            return f"{name} is missing in it, or in its checksums"
        if name in sums and name in files and _sha256(files[name]) != sums[name]:
            return f"{name} does not match its checksum"
    return ""


def unpack(folder: Path, files: Files) -> None:
    """Write files to a new private folder; one that is there already is complete, and stays."""
    if any(Path(name).name != name or name in ("", ".", "..") for name in files):
        raise Failure(f"A parcel for {str(folder)!r} has names that are paths; it is refused.")
    if sum(map(len, files.values())) > MOST_BYTES:
        raise Failure(f"A parcel for {str(folder)!r} has more than {MOST_BYTES:,} bytes.")
    stage = folder.with_name(UNDER_WAY + secrets.token_hex(8))
    with writing(folder):
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            stage.mkdir(mode=0o700)
            for name, content in files.items():
                write_bytes(stage / name, content, 0o600)
            with suppress(FileExistsError):  # another worker of this node was faster
                _rename(stage, folder)
        finally:
            shutil.rmtree(stage, ignore_errors=True)


def _rename(stage: Path, folder: Path) -> None:
    if folder.is_dir():
        raise FileExistsError(folder)
    try:
        stage.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def make_private(folder: Path) -> None:
    """Create a folder that nobody else can read or write."""
    with writing(folder), opened(folder.parent, make=True) as parent:
        with suppress(FileExistsError):
            os.mkdir(folder.name, 0o700, dir_fd=parent)
        handle = os.open(folder.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        try:
            if os.fstat(handle).st_uid != os.geteuid():
                raise UserError(
                    f"The folder {str(folder)!r} belongs to another user; jobs are started from "
                    "it, so move it away, or name another --out."
                )
            os.fchmod(handle, 0o700)
        finally:
            os.close(handle)


def delete_private(folder: Path) -> None:
    """Delete a folder that `make_private` or `unpack` made, with everything in it."""
    with suppress(OSError):
        if folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.geteuid():
            shutil.rmtree(folder)  # follows no links


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
