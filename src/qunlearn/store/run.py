"""The run folder: reading a complete run, writing a new one; `layout.py` lists its files."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from qunlearn.dates import utc
from qunlearn.errors import UserError
from qunlearn.store import start, toml
from qunlearn.store.checksums import read_checksums, write_checksums
from qunlearn.store.files import (
    append_line,
    json_text,
    make_folder,
    read,
    read_object,
    reading,
    remove,
    sha256,
    write_bytes,
    write_json,
    write_text,
    writing,
)
from qunlearn.store.history import Epoch
from qunlearn.store.info import RunInfo, machine, versions
from qunlearn.store.layout import (
    AUDIT,
    CHECKPOINT,
    CHECKSUMS,
    CONFIG,
    FORMAT,
    HISTORY,
    INFO,
    KEY,
    METRICS,
    MODEL,
    NEEDED,
    PARTS,
    PREDICTIONS,
    SPLIT,
    format_of,
    names,
)
from qunlearn.store.limits import parse_lines
from qunlearn.store.lock import check_unlocked, locked
from qunlearn.store.place import named, names_in, opened
from qunlearn.store.typed import Json, typed, untyped
from qunlearn.store.weights import read_tensors, write_weights

if TYPE_CHECKING:
    from torch import Tensor


class Run:
    """A run folder. `Run.writing` starts or resumes a run, `Run.open` reads a complete one."""

    def __init__(self, path: Path):
        self.path = path

    @staticmethod
    def check_free(path: Path, resume: bool = False) -> None:
        """Raise unless a run could be written to `path`, or resumed there; changes nothing."""
        start.check_free(path, resume)

    @classmethod
    def create(cls, path: Path) -> Run:
        """Start a run in a new or empty folder."""
        cls.check_free(path)
        make_folder(path)
        return cls(path)

    @classmethod
    @contextmanager
    def writing(
        cls,
        path: Path,
        config: Mapping[str, object],
        manifest: str,
        resume: bool = False,
        places: Container[str] = (),
    ) -> Iterator[Run]:
        """Start a run, or resume one; writes its settings and its split.

        With `resume`, the run in the folder is opened, even if it is complete. The folder is locked
        for other processes within the block. Settings listed in `places` are locations, such as
        paths; they may differ from those that the run was started with.
        """
        with named(path):
            make_folder(path)
            with locked(path):
                start.check_free(path, resume)  # another process may have written meanwhile
                run = cls(path)
                start.check_same(run, config, manifest, places)
                start.tidy(run)
                if not cls.is_complete(path):
                    start.record_settings(run, config, places)
                    run.write_split(manifest)
                yield run

    @classmethod
    def open(cls, path: Path) -> Run:
        """Open a complete run."""
        if path.is_file():
            raise UserError(f"{str(path)!r} is a file; name the run folder, {str(path.parent)!r}.")
        if not path.is_dir():
            raise UserError(f"There is no run folder {str(path)!r}; check the path.")
        missing = [name for name in NEEDED if not (path / name).is_file()]
        if CONFIG in missing and INFO in missing:
            raise UserError(f"The folder {str(path)!r} is not a run; name one that qunlearn wrote.")
        if INFO in missing:
            raise UserError(
                f"The run {str(path)!r} was not finished; add --resume to the command that started "
                "it."
            )
        if format_of(path) > 1 and not (path / CHECKSUMS).is_file():
            missing.append(CHECKSUMS)
        if missing:
            raise UserError(
                f"The run {str(path)!r} is incomplete: {missing[0]} is missing; restore the file "
                "from a copy, or repeat the run."
            )
        return cls(path)

    @staticmethod
    def is_complete(path: Path) -> bool:
        """Whether the folder has a complete run."""
        return (path / INFO).is_file()

    @staticmethod
    def discard(path: Path, finished: bool = False) -> None:
        """Delete an interrupted run, with `finished` also a complete one, and nothing else."""
        if not path.is_dir():
            return
        ours = (*PARTS, CHECKPOINT, AUDIT, KEY)
        foreign = [name for name in names(path) if name not in ours]
        if foreign or (Run.is_complete(path) and not finished):
            content = f"also holds {foreign[0]!r}" if foreign else "holds a finished run"
            raise UserError(
                f"The folder {str(path)!r} {content} and is not overwritten; move it away, or name "
                "another folder with --out."
            )
        check_unlocked(path)
        remove(path / INFO)  # first, so that the rest does not count as a complete run
        with writing(path), opened(path) as folder:
            for name in names_in(folder):
                os.unlink(name, dir_fd=folder)
        with writing(path), opened(path.parent) as parent:
            os.rmdir(path.name, dir_fd=parent)

    def copy_to(self, path: Path) -> None:
        """Copy a complete run; an interrupted copy does not count as a run."""
        Run.discard(path)
        Run.create(path)
        with writing(path):
            for name in (AUDIT, KEY, *PARTS):  # the last one makes it complete
                if (self.path / name).is_file():
                    with reading(self._checked(name)) as file:
                        write_bytes(path / name, file.read(), 0o600 if name == KEY else 0o666)

    @property
    def model_path(self) -> Path:
        """The path of the weights."""
        return self.path / MODEL

    @property
    def checkpoint_path(self) -> Path:
        """The path of the checkpoint of an unfinished run."""
        return self.path / CHECKPOINT

    def write_config(self, config: Mapping[str, object]) -> None:
        """Save the settings, with which the run can be repeated."""
        write_text(self.path / CONFIG, toml.dumps(config))

    def write_split(self, manifest: str) -> None:
        """Save the split's manifest."""
        write_text(self.path / SPLIT, manifest)

    def append_history(self, row: Epoch) -> None:
        """Append one row to the history."""
        append_line(self.path / HISTORY, json.dumps(row.to_json()))

    def write_metrics(self, metrics: Mapping[str, object]) -> None:
        """Save the metrics."""
        write_json(self.path / METRICS, metrics)

    def write_predictions(self, logits: Mapping[str, Tensor]) -> None:
        """Save the model's logits on each part; every metric can be recomputed from them."""
        write_weights(self.path / PREDICTIONS, logits, {"parts": list(logits)})

    def write_audit(self, name: str, findings: Mapping[str, object]) -> None:
        """Save the findings of one audit; those of other audits stay."""
        write_json(self.path / AUDIT, {**self.audits, name: findings})

    @property
    def audits(self) -> dict[str, object]:
        """The findings of each audit, by its name."""
        path = self.path / AUDIT
        return read_object(path) if path.is_file() else {}

    @property
    def has_predictions(self) -> bool:
        """Whether the model's logits were saved."""
        return (self.path / PREDICTIONS).is_file()

    @property
    def predictions(self) -> dict[str, Tensor]:
        """The model's logits on each part that was measured; empty if they were not saved."""
        if not self.has_predictions:
            return {}
        tensors = read_tensors(self._checked(PREDICTIONS))
        for part, logits in tensors.items():
            if logits.dim() != 2 or not logits.isfinite().all():
                raise UserError(
                    f"The logits of {part!r} in {str(self.path / PREDICTIONS)!r} are not a matrix "
                    "of finite numbers; restore the file from a copy."
                )
        return tensors

    def finish(self, info: RunInfo) -> None:
        """Write the checksums and `run.json`, which completes the run."""
        present = [name for name in PARTS if (self.path / name).is_file()]
        sums = {name: sha256(self.path / name) for name in present if name != CHECKSUMS}
        begun, now = self._dates()
        info = replace(info, begun=begun, finished=now, versions=versions(), machine=machine())
        info = replace(info, model_sha256=sums.get(MODEL, ""), format=FORMAT)
        text = json_text(untyped(info))
        # Includes run.json itself, which is written last and marks the run as complete.
        sums[INFO] = hashlib.sha256(text.encode()).hexdigest()
        write_checksums(self.path / CHECKSUMS, sums)
        write_text(self.path / INFO, text)
        remove(self.checkpoint_path)

    def _dates(self) -> tuple[str, str]:
        """When the run was first started, resumed or not, and the current time."""
        config, now = self.path / CONFIG, time.time()
        begun = config.stat().st_mtime if config.is_file() else now
        return utc(begun), utc(now)

    @property
    def checksums(self) -> dict[str, str]:
        """The checksum of each file; format 1: of the weights only; unfinished runs: empty."""
        if not Run.is_complete(self.path):
            return {}
        if (self.path / CHECKSUMS).is_file():
            return read_checksums(self.path / CHECKSUMS)
        return {MODEL: str(read_object(self.path / INFO).get("model_sha256"))}

    def check_model(self) -> None:
        """Raise unless the weights match their checksum."""
        self._checked(MODEL)

    def _checked(self, name: str) -> Path:
        """The path of a file of the run, after verifying its checksum."""
        path, expected = self.path / name, self.checksums.get(name)
        if expected is not None and sha256(path) != expected:
            raise UserError(
                f"The file {str(path)!r} has changed since the run was finished: its checksum does "
                "not match. Restore it from a copy, or repeat the run."
            )
        return path

    @property
    def config(self) -> Json:
        """The settings."""
        config: Json = read(self._checked(CONFIG), toml.loads, "TOML")
        return config

    @property
    def split(self) -> str:
        """The split's manifest."""
        return str(read(self._checked(SPLIT), str, "text"))

    @property
    def history(self) -> list[Epoch]:
        """The history, a row for each epoch."""
        if not (self.path / HISTORY).exists():
            return []
        path = self._checked(HISTORY)
        return [Epoch.from_json(row, path) for row in read(path, parse_lines, "JSON")]

    @property
    def metrics(self) -> Json:
        """The measurements."""
        return read_object(self._checked(METRICS))

    @property
    def info(self) -> RunInfo:
        """The provenance of the run."""
        path = self._checked(INFO)
        return typed(RunInfo, read_object(path), path)
