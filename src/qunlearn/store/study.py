"""The folder of a comparison: its settings, its cells and its table."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.store import toml
from qunlearn.store.files import (
    json_text,
    make_folder,
    read,
    read_object,
    sweep,
    write_json,
    write_text,
    writing,
)
from qunlearn.store.limits import LARGEST
from qunlearn.store.lock import locked
from qunlearn.store.place import FILE, check_kind, check_reached, named, opened
from qunlearn.store.run import Run
from qunlearn.store.typed import Json

CONFIG, TABLE, JOBS = "compare.toml", "table.json", "jobs"
SUM = "sha256"
"""Key of the checksum in a table, computed over its other entries."""


PLACES = ("run", "data_path", "workers", "threads")
"""Settings in which machines that make one comparison together may differ."""


class StudyFolder:
    """A comparison on disk, which can be resumed; each cell names the comparison it belongs to."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    @contextmanager
    def writing(cls, path: Path, config: Mapping[str, object]) -> Iterator[StudyFolder]:
        """Create or reopen the folder of a comparison, locked for other processes."""
        with named(path):
            if not (path / CONFIG).is_file():
                Run.create(path)
            with locked(path):
                with writing(path), opened(path) as folder:
                    sweep(folder)
                write_text(path / CONFIG, toml.dumps(config))
                yield cls(path)

    @classmethod
    def joined(cls, path: Path, config: Mapping[str, object]) -> StudyFolder:
        """The folder of a comparison that another machine makes; it must be the same comparison."""
        folder = cls(path)
        if not (path / CONFIG).is_file():
            raise UserError(
                f"There is no comparison to join in {str(path)!r}; check --out, or leave --join "
                "out."
            )
        saved, current = folder.config, toml.loads(toml.dumps(config))
        for name in {**saved, **current}:
            if saved.get(name) != current.get(name) and name not in PLACES:
                raise UserError(
                    f"The comparison {str(path)!r} has {name} = {saved.get(name)!r}, not "
                    f"{current.get(name)!r}; give the same settings to join it."
                )
        return folder

    def write_table(self, table: Mapping[str, object]) -> None:
        """Save the table with its checksum."""
        write_json(self.path / TABLE, {**table, SUM: _sum(table)})

    @property
    def table(self) -> Json:
        """The table, compared with its checksum."""
        table = read_object(self.path / TABLE)
        try:
            # Older versions wrote none, or one over the words of what failed, too.
            intact = table.pop(SUM, None) in (None, _sum(table), _sum(table, everything=True))
        except ValueError:  # numbers that no table has
            intact = False
        if not intact:
            raise UserError(
                f"The file {str(self.path / TABLE)!r} has changed since it was written: its "
                "checksum does not match. Repeat the same `qunlearn compare` to rebuild it "
                "from its cells."
            )
        return table

    def sealed_table(self) -> Json:
        """The table, if it has a checksum; those of older versions have none, nor forged ones."""
        if SUM not in read_object(self.path / TABLE):
            raise UserError(
                f"The file {str(self.path / TABLE)!r} has no checksum, so changes to it cannot be "
                "detected. Repeat the same `qunlearn compare` to rebuild it from its cells."
            )
        return self.table

    @property
    def config(self) -> Json:
        """The settings."""
        config: Json = read(self.path / CONFIG, toml.loads, "TOML")
        return config


def journal_path(path: Path) -> Path:
    """The place of a search's journal, which optuna writes; no link leads there."""
    make_folder(path.parent)
    check_reached(path.parent)
    for name in (path, path.with_name(f"{path.name}.lock")):
        check_kind(name, FILE)
    if path.is_file() and path.stat().st_size > LARGEST["JSON"]:
        raise UserError(
            f"The journal {str(path)!r} has more than {LARGEST['JSON']:,} bytes, the limit for "
            "such files; delete it to start the search again from the finished trials."
        )
    return path


def _sum(table: Mapping[str, object], everything: bool = False) -> str:
    """The checksum of a table, without the words of what failed."""
    content = {k: v for k, v in table.items() if everything or k != "failed"}
    return hashlib.sha256(json_text(content).encode()).hexdigest()
