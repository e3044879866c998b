"""The folder of a study: its settings, its cells and its table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qunlearn.errors import UserError
from qunlearn.store import toml
from qunlearn.store.files import read, read_json, write_json, write_text
from qunlearn.store.run import Run

CONFIG, TABLE = "compare.toml", "table.json"
MAY_CHANGE = ("workers", "threads", "methods", "seeds", "settings", "data_dir", "metadata")
"""What a study may be gone on with differently; a cell with other settings is refused by itself."""


class StudyFolder:
    """A comparison on disk, which can be gone on with as long as its question is the same."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def open_or_create(cls, path: Path, config: Mapping[str, Any]) -> StudyFolder:
        """The folder of this very comparison; a new one if there is none yet."""
        if not (path / CONFIG).is_file():
            Run.check_free(path)
            Run.create(path)
            write_text(path / CONFIG, toml.dumps(config))
            return cls(path)
        written = read(path / CONFIG, toml.loads, "TOML")
        asked = toml.loads(toml.dumps(config))
        for name in sorted((written.keys() | asked.keys()) - set(MAY_CHANGE)):
            if written.get(name) != asked.get(name):
                raise UserError(
                    f"The folder {str(path)!r} holds a comparison with {name} = "
                    f"{written.get(name)!r}, not {asked.get(name)!r}; name a new one with --out."
                )
        write_text(path / CONFIG, toml.dumps(config))
        return cls(path)

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
