"""Locating a source's files: in the folder named by the user, or downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from qunlearn.data.sources.registry import SourceOptions
from qunlearn.errors import UserError
from qunlearn.store.download import fetch_archive, fetch_file


@dataclass(frozen=True)
class Archive:
    """A packed file at its official address.

    Attributes:
        url: The address.
        md5: Its checksum.
        folder: The folder in it that holds everything.
        wanted: Says of a path below that folder whether it is unpacked.
    """

    url: str
    md5: str
    folder: str
    wanted: Callable[[str], bool]


@dataclass(frozen=True)
class Plain:
    """Files at their official addresses, used as they are.

    Attributes:
        base: The address of the folder that they are in.
        md5: The checksum of each.
        folder: The folder that they are put in.
    """

    base: str
    md5: dict[str, str]
    folder: str


def locate(
    name: str, options: SourceOptions, origin: Archive | Plain, needed: tuple[str, ...]
) -> Path:
    """The folder in which all `needed` files are.

    Looked for in the data folder itself and in the folder of the official name below it; without
    a data folder, where an earlier download put them.
    """
    base = options.data_dir or options.cache_dir / "data" / name
    if options.data_dir is not None and not base.is_dir() and not options.download:
        raise UserError(f"There is no folder {str(base)!r}; check --data-dir.")
    places = (base / origin.folder, base)
    here = [folder for folder in places if _missing(folder, needed) is None]
    if not here and options.download:
        _fetch(origin, base, options)
        here = [folder for folder in places if _missing(folder, needed) is None]
    if here:
        return here[0]
    if options.data_dir is None:
        raise UserError(
            f"The data set {name!r} needs files: name their folder with --data-dir DIR, or fetch "
            "them from the official address with `qunlearn train --download`."
        )
    # Report on the folder that has some of the files, if one does.
    near = [place for place in places if any((place / file).exists() for file in needed)]
    place = near[0] if near else base
    raise UserError(
        f"The data set {name!r} lacks {_missing(place, needed)!r} in {str(place)!r}; correct "
        "--data-dir, put it there, or fetch it with `qunlearn train --download`."
    )


def _fetch(origin: Archive | Plain, base: Path, options: SourceOptions) -> None:
    if isinstance(origin, Archive):
        fetch_archive(origin.url, origin.md5, base, origin.folder, origin.wanted, options.progress)
        return
    # Files that lie in the data folder itself are completed there.
    direct = any((base / file).exists() for file in origin.md5)
    place = base if direct else base / origin.folder
    for file, md5 in origin.md5.items():
        if not (place / file).exists():
            fetch_file(f"{origin.base}{file}", md5, place / file, options.progress)


def _missing(folder: Path, needed: tuple[str, ...]) -> str | None:
    return next((file for file in needed if not (folder / file).exists()), None)
