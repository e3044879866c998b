"""The run that another one descends from."""

from __future__ import annotations

from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.runs.nearby import nearby
from qunlearn.store.run import Run


def origin_of(run: Run) -> Run | None:
    """The run that forgot, wherever it is now; the digest of its weights says that it is it."""
    if "run" not in run.config:  # a Retrain that was declared
        return None
    named, info = Path(str(run.config["run"])), run.info
    if info.weights_of is not None:  # nothing was forgotten since that one
        before = with_digest(run.path, named, info.weights_of)
        return None if before is None or before.info.origin is None else origin_of(before)
    return None if info.origin is None else with_digest(run.path, named, info.origin)


def recorded(folder: Path, named: Path, digest: str | None) -> Run:
    """The run of a name, seen from a folder, with the weights that are on record, if any are."""
    run = with_digest(folder, named, digest) if digest else None
    if run is not None:
        return run
    run = Run.open(named)
    if digest:
        raise UserError(
            f"The run {str(run.path)!r} has been made anew since this configuration was written; "
            "ask by flags instead."
        )
    return run


def with_digest(folder: Path, named: Path, digest: str) -> Run | None:
    """The run of a name, seen from a folder, whose weights have this digest; None if none has."""
    for path in nearby(folder, named):
        if Run.is_complete(path):
            run = Run.open(path)
            if run.info.model_sha256 == digest:
                return run
    return None
