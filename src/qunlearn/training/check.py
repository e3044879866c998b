"""Whether a run is whole, and what is wrong where it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from qunlearn.data import manifest
from qunlearn.errors import UserError
from qunlearn.store import run as parts
from qunlearn.store.files import UNDER_WAY
from qunlearn.store.lock import LOCK, check_unlocked
from qunlearn.store.run import PARTS, Run
from qunlearn.training.checkpoint import check_manifest, tensors_of

ADDED = (parts.AUDIT, "report.html", "figures")
"""What other commands put into a run folder; no part of the run."""

READ: dict[str, Callable[[Run], object]] = {
    parts.INFO: lambda run: run.info,
    parts.CHECKSUMS: lambda run: run.checksums,
    parts.CONFIG: lambda run: run.config,
    parts.SPLIT: lambda run: manifest.parse(run.split),
    parts.MODEL: tensors_of,
    parts.HISTORY: lambda run: run.history,
    parts.METRICS: lambda run: run.metrics,
    parts.PREDICTIONS: lambda run: run.predictions,
}
"""How each file is read, and compared with its checksum by that."""


def check_run(path: Path) -> list[str]:
    """What is wrong with a run, a sentence each; nothing if it is whole.

    Everything in the folder is read, and nothing is changed. Whether the data set is still the one
    that the run was made with is not asked here; whatever uses the run checks that.
    """
    if path.is_file():
        raise UserError(f"{str(path)!r} is a file; name the run folder, {str(path.parent)!r}.")
    if not path.is_dir():
        raise UserError(f"There is no run folder {str(path)!r}; check the path.")
    present = {entry.name for entry in path.iterdir()}
    if not present & {parts.CONFIG, parts.INFO}:
        raise UserError(f"The folder {str(path)!r} is not a run; name one that qunlearn wrote.")
    if parts.INFO not in present:
        check_unlocked(path)
        return [f"The run {str(path)!r} was not finished; go on with it with --resume."]
    try:
        older, sums = parts.format_of(path) == 1, Run(path).checksums
    except UserError as error:
        return [str(error)]
    wanted = {*parts.NEEDED, *sums, *(() if older else (parts.CHECKSUMS,))}
    known = wanted if parts.CHECKSUMS in present else {*PARTS}
    faults = [
        fault for name in READ for fault in _faults(path, name, name in wanted, name in known)
    ]
    if not faults:
        faults += _disagreements(Run(path), sums)
    return [*faults, *_strange(path, present | sums.keys())]


def _faults(path: Path, name: str, wanted: bool, known: bool) -> Iterator[str]:
    """What is wrong with one file."""
    file = path / name
    if file.is_symlink() or (file.exists() and not file.is_file()):
        yield f"{str(file)!r} is a link or a folder, not a file of the run's own."
    elif file.exists() and not known:
        yield f"The file {str(file)!r} was added: the run was finished without it."
    elif file.exists():
        try:
            READ[name](Run(path))
        except UserError as error:
            yield str(error)
    elif wanted:
        yield f"The file {str(file)!r} is missing; restore it from a copy."


def _disagreements(run: Run, sums: dict[str, str]) -> Iterator[str]:
    """Where files that are whole, each for itself, do not belong together."""
    try:
        check_manifest(run)
    except UserError as error:
        yield str(error)
    if run.info.get("model_sha256") != sums.get(parts.MODEL):
        yield f"run.json and checksums.txt of {str(run.path)!r} speak of different weights."


def _strange(path: Path, names: set[str]) -> Iterator[str]:
    for name in sorted(names - {*PARTS, *ADDED}):
        left = name in (parts.CHECKPOINT, LOCK) or name.startswith(UNDER_WAY)
        what = "is left of a process that was cut off" if left else "is no part of a run"
        yield f"{str(path / name)!r} {what}; move it away."
