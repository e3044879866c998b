"""Whether a run is intact, and what is wrong where it is not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from qunlearn.data import manifest
from qunlearn.errors import UserError
from qunlearn.runs.data import DATA
from qunlearn.runs.metrics import metrics_of
from qunlearn.runs.model_file import check_manifest, tensors_of
from qunlearn.store import layout
from qunlearn.store.files import UNDER_WAY
from qunlearn.store.layout import PARTS
from qunlearn.store.lock import LOCK, check_unlocked
from qunlearn.store.place import FILE, FOLDER, kind_of
from qunlearn.store.run import Run

ADDED = (layout.AUDIT, layout.PAGE, DATA, layout.KEY, *layout.PAPERS)
"""What other commands put into a run folder beside figures; no part of the run."""

TRANSIENT = (layout.CHECKPOINT, LOCK)
"""What is there only while a run is being made, beside files that are being written."""

READ: dict[str, Callable[[Run], object]] = {
    layout.INFO: lambda run: run.info,
    layout.CHECKSUMS: lambda run: run.checksums,
    layout.CONFIG: lambda run: run.config,
    layout.SPLIT: lambda run: manifest.parse(run.split),
    layout.MODEL: tensors_of,
    layout.HISTORY: lambda run: run.history,
    layout.METRICS: metrics_of,
    layout.PREDICTIONS: lambda run: run.predictions,
    layout.AUDIT: lambda run: run.audits,
}
"""How each file is read, and compared with its checksum by that."""


class FaultKind(Enum):
    """In what way an entry of a run folder is wrong."""

    UNFINISHED = "unfinished"
    UNREADABLE = "unreadable"
    MISSING = "missing"
    ADDED = "added"
    OTHER_WEIGHTS = "other weights"
    UNKNOWN_CHECKSUM = "unknown checksum"
    LEFT_OVER = "left over"
    NOT_A_FILE = "not a file"
    FOREIGN = "foreign"


@dataclass(frozen=True)
class Fault:
    """Something that is wrong in the folder of a run or of a comparison.

    Attributes:
        kind: What is wrong.
        path: The file or folder that it is wrong with.
        detail: UNREADABLE: the reader's message. UNKNOWN_CHECKSUM: the name that has one.
            NOT_A_FILE: what stands there, such as "a link".
    """

    kind: FaultKind
    path: Path
    detail: str = ""


def check_run(path: Path) -> list[Fault]:
    """What is wrong with a run; nothing if it is intact.

    Everything in the folder is read, and nothing is changed. Whether the data set is still the one
    that the run was made with is not asked here; whatever uses the run checks that.
    """
    if path.is_file():
        raise UserError(f"{str(path)!r} is a file; name the run folder, {str(path.parent)!r}.")
    if not path.is_dir():
        raise UserError(f"There is no run folder {str(path)!r}; check the path.")
    present = {entry.name for entry in path.iterdir()}
    if not present & {layout.CONFIG, layout.INFO}:
        raise UserError(f"The folder {str(path)!r} is not a run; name one that qunlearn wrote.")
    if layout.INFO not in present:
        check_unlocked(path)
        unfinished = Fault(FaultKind.UNFINISHED, path)
        return [unfinished, *foreign(path, (*PARTS, *ADDED), allow_transient=True)]
    try:
        older, sums = layout.format_of(path) == 1, Run(path).checksums
    except UserError as error:
        unreadable = Fault(FaultKind.UNREADABLE, path, str(error))
        return [unreadable, *foreign(path, (*PARTS, *ADDED))]
    required = {*layout.NEEDED, *sums, *(() if older else (layout.CHECKSUMS,))}
    known = {*(required if layout.CHECKSUMS in present else PARTS), layout.AUDIT}
    faults = [
        fault for name in READ for fault in _faults(path, name, name in required, name in known)
    ]
    if not faults:
        faults += _disagreements(Run(path), sums)
    return [*faults, *foreign(path, (*PARTS, *ADDED))]


def _faults(path: Path, name: str, required: bool, known: bool) -> Iterator[Fault]:
    """What is wrong with one file."""
    file = path / name
    kind = kind_of(file)
    if kind not in (None, FILE):
        return  # which `foreign` reports
    if kind and not known:
        yield Fault(FaultKind.ADDED, file)
    elif kind:
        try:
            READ[name](Run(path))
        except UserError as error:
            yield Fault(FaultKind.UNREADABLE, file, str(error))
    elif required:
        yield Fault(FaultKind.MISSING, file)


def _disagreements(run: Run, sums: dict[str, str]) -> Iterator[Fault]:
    """Where files that are intact, each by itself, do not belong together."""
    try:
        check_manifest(run)
    except UserError as error:
        yield Fault(FaultKind.UNREADABLE, run.path, str(error))
    if run.info.model_sha256 != sums.get(layout.MODEL):
        yield Fault(FaultKind.OTHER_WEIGHTS, run.path)
    for name in sorted(sums.keys() - {*PARTS}):
        yield Fault(FaultKind.UNKNOWN_CHECKSUM, run.path, name)


def foreign(
    path: Path, files: Collection[str], folders: Collection[str] = (), allow_transient: bool = False
) -> Iterator[Fault]:
    """What stands in a folder that no command puts there, or not as what it should be.

    Args:
        path: The folder of a run or a comparison.
        files: The names of files that belong there.
        folders: The names of folders that do, beside `figures`.
        allow_transient: Whether files that exist only while a run is being made belong there, too.
    """
    for entry in sorted(path.iterdir()):
        name, kind = entry.name, kind_of(entry)
        transient = name in TRANSIENT or name.startswith(UNDER_WAY)
        expected = name in files or transient or bool(layout.ALSO.fullmatch(name))
        if name == layout.FIGURES and kind == FOLDER:
            for figure in sorted(entry.iterdir()):
                yield from _odd(figure, bool(layout.FIGURE_NAME.fullmatch(figure.name)), FILE)
        elif name in folders or name in (layout.FIGURES, layout.RECORDS):
            yield from _odd(entry, True, FOLDER)
        elif transient and kind == FILE and not allow_transient:
            yield Fault(FaultKind.LEFT_OVER, entry)
        else:
            yield from _odd(entry, expected, FILE)


def _odd(entry: Path, expected: bool, expected_kind: str) -> Iterator[Fault]:
    kind = kind_of(entry)
    if kind not in (None, expected_kind):
        yield Fault(FaultKind.NOT_A_FILE, entry, kind)
    elif not expected:
        yield Fault(FaultKind.FOREIGN, entry)
