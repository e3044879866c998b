"""Downloads: verified by checksum before they are installed, unpacked without trusting paths.

This does not use pooch, which limits neither the download size nor the unpacked size, and follows
symbolic links in the target folder.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import stat
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO

from qunlearn.errors import UserError
from qunlearn.store.files import replacing, writing
from qunlearn.store.place import named, opened

Progress = Callable[[int, "int | None"], None]
TIMEOUT = 60.0  # seconds without a byte
CHUNK = 1 << 20
LARGEST = 8 << 30  # maximum bytes of a download, and of an unpacked archive


def fetch_file(url: str, md5: str, target: Path, progress: Progress | None = None) -> None:
    """Download one file to `target`; it is installed only if its checksum matches.

    Args:
        url: The address.
        md5: The expected checksum.
        target: The path to write; missing parent folders are created.
        progress: Called with the bytes so far and in all (None if unknown).
    """
    with _folder(target.parent), replacing(target) as file:
        _fetch(url, md5, file, progress)


def fetch_archive(
    url: str,
    md5: str,
    into: Path,
    folder: str,
    wanted: Callable[[str], bool],
    progress: Progress | None = None,
) -> None:
    """Download a .tar.gz or .zip archive and unpack one folder of it.

    Only regular files selected by `wanted` are unpacked; links, devices and paths that leave the
    folder are skipped. Existing files are replaced.

    Args:
        url: The address.
        md5: The expected checksum of the archive.
        into: The parent folder of the unpacked `folder`.
        folder: The top folder in the archive.
        wanted: Whether to unpack a path below `folder`.
        progress: Called with the bytes so far and in all (None if unknown).
    """
    with _folder(into), tempfile.TemporaryDirectory(dir=into, prefix=".download.") as name:
        archive, unpacked = Path(name) / "archive", Path(name) / "unpacked"
        with archive.open("wb") as file:
            _fetch(url, md5, file, progress)
        unpacked.mkdir()
        try:
            count = _unpack(archive, unpacked, folder, wanted)
        except Exception as error:  # readers raise nearly anything on damaged files
            raise UserError(f"The archive {url} cannot be unpacked: {error}; try again.") from None
        if not count:
            raise UserError(
                f"The archive {url} has no files in {folder!r}, so its layout has changed; upgrade "
                "qunlearn."
            )
        _move(unpacked, into / folder)


def _fetch(url: str, md5: str, file: IO[bytes], progress: Progress | None) -> None:
    remedy = f"download {url} by hand and name its folder with --data-dir"
    digest = hashlib.md5(usedforsecurity=False)
    received = 0
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "qunlearn"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            length = answer.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
            while chunk := answer.read(CHUNK):
                received += len(chunk)
                if received > LARGEST:
                    raise UserError(f"{url} is larger than {LARGEST:,} bytes; {remedy}.")
                digest.update(chunk)
                file.write(chunk)
                if progress is not None:
                    progress(received, total)
    except urllib.error.HTTPError as error:
        raise UserError(f"{url} returned HTTP {error.code} {error.reason}; {remedy}.") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise UserError(f"{url} could not be fetched ({reason}); {remedy}.") from None
    if total is not None and received < total:
        raise UserError(
            f"The download of {url} broke off after {received:,} of {total:,} bytes; try again, or "
            f"{remedy}."
        )
    if digest.hexdigest() != md5:
        raise UserError(
            f"{url} has the checksum {digest.hexdigest()} instead of {md5}, so it is damaged or "
            f"not the official file; it was discarded. Try again, or {remedy}."
        )


def _unpack(archive: Path, target: Path, folder: str, wanted: Callable[[str], bool]) -> int:
    count, size = 0, 0
    for name, length, open_member in _members(archive):
        parts = PurePosixPath(name).parts
        inside = "/".join(parts[1:])
        if parts[:1] != (folder,) or ".." in parts or not wanted(inside):
            continue
        size += length
        if size > LARGEST:
            raise OSError(f"it unpacks to more than {LARGEST:,} bytes")
        path = target / inside
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_member() as source, path.open("wb") as file:
            shutil.copyfileobj(source, file, CHUNK)
        count += 1
    return count


def _members(archive: Path) -> Iterator[tuple[str, int, Callable[[], IO[bytes]]]]:
    """Name, size and opener of each regular file."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as pack:
            for entry in pack.infolist():
                if not entry.is_dir() and not stat.S_ISLNK(entry.external_attr >> 16):
                    yield entry.filename, entry.file_size, lambda e=entry: pack.open(e)  # type: ignore[misc]
        return
    with tarfile.open(archive, "r:*") as tar:
        for member in tar:
            if member.isfile():
                yield member.name, member.size, lambda m=member: tar.extractfile(m)  # type: ignore[misc]


def _move(source: Path, target: Path) -> None:
    """Move the files of a folder into another, following no symbolic link."""
    with named(target.parent):
        for path in sorted(source.rglob("*")):
            place = target / path.relative_to(source)
            if path.is_file():
                with opened(place.parent, make=True) as folder:
                    os.replace(path, place.name, dst_dir_fd=folder)


@contextmanager
def _folder(path: Path) -> Iterator[None]:
    """Create a folder for the block; a new one is removed if the block raises."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UserError(
            f"Nothing can be written in {str(path)!r}: {error}; choose another --data-dir."
        ) from None
    try:
        with writing(path):
            yield
    except BaseException:
        with suppress(OSError):  # report the first error
            for folder in made:
                folder.rmdir()
        raise
