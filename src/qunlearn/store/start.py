"""Starting a run in a folder, or resuming one: whether it may be, and what is left of before."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from qunlearn.errors import UserError
from qunlearn.store import toml
from qunlearn.store.files import remove, sweep, writing
from qunlearn.store.layout import CHECKPOINT, CONFIG, HISTORY, INFO, SPLIT, names
from qunlearn.store.lock import check_unlocked
from qunlearn.store.place import opened

if TYPE_CHECKING:
    from qunlearn.store.run import Run


class AnotherRun(UserError):
    """The run in the folder has other settings or samples than the current request."""


def check_free(path: Path, resume: bool = False) -> None:
    """Raise unless a run could be written to `path`, or resumed there; changes nothing."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        raise UserError(
            f"The output {str(path)!r} has a name that is not UTF-8, which the files in it "
            "cannot be read by; name another one with --out."
        ) from None
    try:
        exists = path.exists()
    except OSError as error:
        raise UserError(
            f"The output {str(path)!r} is not a valid path: {error.strerror}; name another one "
            "with --out."
        ) from None
    if exists and not path.is_dir():
        raise UserError(f"The output {str(path)!r} is a file; name a new folder with --out.")
    begun = path.is_dir() and (path / CONFIG).is_file()
    if begun and not resume:
        check_unlocked(path)
    if path.is_dir() and not (resume and begun) and names(path):
        hint = ", or add --resume to resume the run in it" if begun else ""
        raise UserError(
            f"The output folder {str(path)!r} is not empty; name a new one with --out{hint}."
        )
    ancestor = path.absolute()
    while not ancestor.exists():
        ancestor = ancestor.parent
    if not ancestor.is_dir() or not os.access(ancestor, os.W_OK | os.X_OK):
        raise UserError(
            f"The output folder {str(path)!r} cannot be written: {str(ancestor)!r} is not a "
            "folder with write permission; name another one with --out."
        )


def check_same(
    run: Run, config: Mapping[str, object], manifest: str, places: Container[str]
) -> None:
    """Raise if the folder has a run with other settings or other samples."""
    current = _compared(toml.loads(toml.dumps(config)))
    saved = _compared(run.config) if (run.path / CONFIG).is_file() else current
    compared = (name for name in {**saved, **current} if name not in places)
    name = next((name for name in compared if saved.get(name) != current.get(name)), None)
    if name is not None:
        raise AnotherRun(
            f"The run {str(run.path)!r} was started with {name} = {saved.get(name)!r}, not "
            f"{current.get(name)!r}; use the original setting, or name a new folder with --out."
        )
    if (run.path / SPLIT).is_file() and run.split != manifest:
        raise AnotherRun(
            f"The run {str(run.path)!r} was started with other samples than the data has now; "
            "restore the data, or start a new run with another --out."
        )


def record_settings(run: Run, config: Mapping[str, object], places: Container[str]) -> None:
    """Save the settings; the file keeps the modification time of the start of the run."""
    file, current = run.path / CONFIG, toml.loads(toml.dumps(config))
    if not file.is_file():
        run.write_config(config)
        return
    begun, saved = file.stat().st_mtime_ns, _compared(run.config)
    current = _compared(current)
    located = (name for name in {**saved, **current} if name in places)
    if any(saved.get(name) != current.get(name) for name in located):
        run.write_config(config)
        os.utime(file, ns=(begun, begun), follow_symlinks=False)


def tidy(run: Run) -> None:
    """Delete leftovers of a killed process; the checkpoint stays until the run is complete."""
    finished = (run.path / INFO).is_file()
    with writing(run.path), opened(run.path) as folder:
        sweep(folder)
    remove(run.path / (CHECKPOINT if finished else HISTORY))


def _compared(config: Mapping[str, object]) -> dict[str, object]:
    """Settings for comparison, by name; those of the provenance as `provenance.NAME`.

    `download` and `cache_dir` are left out, because they do not affect the result, and `where`,
    which versions before 0.2.0 saved: its samples are compared, and its value is not for messages.

    >>> _compared({"lr": 0.1, "download": True, "provenance": {"origin": "ab"}})
    {'lr': 0.1, 'provenance.origin': 'ab'}
    """
    flat: dict[str, object] = {}
    for name, value in config.items():
        if name == "provenance" and isinstance(value, Mapping):
            flat |= {f"{name}.{key}": each for key, each in value.items()}
        elif name not in ("download", "cache_dir", "where"):
            flat[name] = value
    return flat
