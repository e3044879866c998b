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
    path, info = Path(str(run.config["run"])), run.info
    if info.weights_of is not None:  # nothing was forgotten since that one
        before = with_digest(run.path, path, info.weights_of)
        return None if before is None or before.info.origin is None else origin_of(before)
    return None if info.origin is None else with_digest(run.path, path, info.origin)


def recorded(folder: Path, path: Path, digest: str | None) -> Run:
    """The run at a path, seen from a folder, with the weights that are on record, if any are."""
    run = with_digest(folder, path, digest) if digest else None
    if run is not None:
        return run
    run = Run.open(path)
    if digest:
        raise UserError(
            f"The run {str(run.path)!r} has been made anew since this configuration was written; "
            "ask by flags instead."
        )
    return run


def with_digest(folder: Path, path: Path, digest: str) -> Run | None:
    """The run at a path, seen from a folder, whose weights have this digest; None if none has."""
    for candidate in nearby(folder, path):
        if Run.is_complete(candidate):
            run = Run.open(candidate)
            if run.info.model_sha256 == digest:
                return run
    return None
