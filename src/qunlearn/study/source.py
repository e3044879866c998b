"""Settings that were found in one comparison and are used, as they are, in another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.store.files import read_json
from qunlearn.store.typed import typed
from qunlearn.study.config import Settings, variant


@dataclass(frozen=True)
class _Row:
    """What a table says of a method's settings."""

    method: str
    settings: Settings
    trials: int


@dataclass(frozen=True)
class _Searched:
    """What a table says of its settings; a file that holds no more will do."""

    rows: tuple[_Row, ...]
    select: str | None = None


@dataclass(frozen=True)
class Source:
    """The table of a finished comparison; its settings, and how many trials each of them had."""

    path: Path
    select: str | None
    settings: Mapping[str, Settings]
    trials: Mapping[str, int]

    @classmethod
    def read(cls, path: Path) -> Source:
        """Read a table."""
        content = read_json(path)
        try:
            table = typed(_Searched, content, path)
        except UserError:
            raise UserError(
                f"The file {str(path)!r} is not a comparison's table; name the table.json that "
                "`qunlearn compare` wrote."
            ) from None
        settings = {
            row.method: {name: value for name, value in row.settings.items() if name != "seed"}
            for row in table.rows
            if row.method != "retrain"
        }
        return cls(path, table.select, settings, {row.method: row.trials for row in table.rows})

    def row(self, name: str) -> str:
        """The row that a method's settings come from; a variant without its own has its base's."""
        for candidate in (name, variant(name)[0]):
            if candidate in self.settings:
                return candidate
        raise UserError(
            f"The table {str(self.path)!r} has no settings for {name!r}; with --settings-from "
            f"compare only {', '.join(self.settings)}, and variants of these."
        )
