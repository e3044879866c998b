"""The folder of a study: its settings, its cells and its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qunlearn.store import toml
from qunlearn.store.files import read, read_json, write_json, write_text
from qunlearn.store.lock import locked
from qunlearn.store.run import Run

CONFIG, TABLE = "compare.toml", "table.json"


class StudyFolder:
    """A comparison on disk, which can be gone on with; its cells say what they belong to."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    @contextmanager
    def writing(cls, path: Path, config: Mapping[str, Any]) -> Iterator[StudyFolder]:
        """The folder of a comparison, new or not; no other process can write to it meanwhile."""
        if not (path / CONFIG).is_file():
            Run.create(path)
        with locked(path):
            write_text(path / CONFIG, toml.dumps(config))
            yield cls(path)

    def write_table(self, table: Mapping[str, Any]) -> None:
        """Keep the table."""
        write_json(self.path / TABLE, table)

    @property
    def table(self) -> dict[str, Any]:
        """The table."""
        table: dict[str, Any] = read_json(self.path / TABLE)
        return table

    @property
    def config(self) -> dict[str, Any]:
        """The settings."""
        config: dict[str, Any] = read(self.path / CONFIG, toml.loads, "TOML")
        return config
