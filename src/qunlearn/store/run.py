"""The run folder: what was asked, what it was done on, what came out.

config.toml         the settings; `qunlearn train --config` with it makes the run again
split.json          the manifest: every sample's part and hash, and what was forgotten
model.safetensors   the weights, with everything needed to build the model in the header
history.jsonl       one line for each epoch
metrics.json        accuracy and the other figures
predictions.safetensors   the model's outputs on every part that was measured
audit.json          what audits found, by their names; only if one was made
run.json            versions, machine, timings; written last, so its presence means "complete"

While a run is being made there are also checkpoint.safetensors, from which it can go on, and .lock.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qunlearn.errors import UserError
from qunlearn.store import toml
from qunlearn.store.files import (
    UNDER_WAY,
    read,
    read_json,
    sha256,
    write_bytes,
    write_json,
    write_text,
)
from qunlearn.store.lock import LOCK, locked
from qunlearn.store.weights import read_tensors, write_weights

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, SPLIT, MODEL = "config.toml", "split.json", "model.safetensors"
HISTORY, METRICS, INFO = "history.jsonl", "metrics.json", "run.json"
PREDICTIONS, CHECKPOINT, AUDIT = "predictions.safetensors", "checkpoint.safetensors", "audit.json"
PARTS = (CONFIG, SPLIT, MODEL, HISTORY, METRICS, PREDICTIONS, AUDIT, INFO)


class AnotherRun(UserError):
    """What is in the folder was begun with other settings or samples than are given now."""


class Run:
    """A run folder. `Run.writing` begins one or goes on with it, `Run.open` reads a whole one."""

    def __init__(self, path: Path):
        self.path = path

    @staticmethod
    def check_free(path: Path, resume: bool = False) -> None:
        """Raise unless a run could be written to `path`, or gone on with; touches nothing."""
        try:
            exists = path.exists()
        except OSError as error:
            raise UserError(
                f"The output {str(path)!r} is no possible path: {error.strerror}; name another one "
                "with --out."
            ) from None
        if exists and not path.is_dir():
            raise UserError(f"The output {str(path)!r} is a file; name a new folder with --out.")
        begun = path.is_dir() and (path / CONFIG).is_file()
        if path.is_dir() and not (resume and begun) and _names(path):
            hint = ", or go on with the run in it with --resume" if begun else ""
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

    @classmethod
    def create(cls, path: Path) -> Run:
        """Begin a run in a new or empty folder."""
        cls.check_free(path)
        make_folder(path)
        return cls(path)

    @classmethod
    @contextmanager
    def writing(
        cls, path: Path, config: Mapping[str, Any], manifest: str, resume: bool = False
    ) -> Iterator[Run]:
        """A run to write, with what is known before anything is computed: settings and split.

        It is a new one, or with `resume` the one that is there, which may be finished already. No
        other process can write to it meanwhile.
        """
        make_folder(path)
        with locked(path):
            cls.check_free(path, resume)  # another process may have been faster
            run = cls(path)
            run._check_begun_with(config, manifest)
            if not cls.is_complete(path):
                run._tidy()
                run.write_config(config)
                run.write_split(manifest)
            yield run

    def _check_begun_with(self, config: Mapping[str, Any], manifest: str) -> None:
        """Raise if the folder has a run with other settings, or of other samples."""
        now = toml.loads(toml.dumps(config))
        then = self.config if (self.path / CONFIG).is_file() else now
        name = next((n for n in {**then, **now} if then.get(n) != now.get(n)), None)
        if name is not None:
            raise AnotherRun(
                f"The run {str(self.path)!r} was begun with {name} = {then.get(name)!r}, not "
                f"{now.get(name)!r}; give what it was begun with, or a new --out."
            )
        if (self.path / SPLIT).is_file() and self.split != manifest:
            raise AnotherRun(
                f"The run {str(self.path)!r} was begun with other samples than are there now; "
                "restore the data, or begin anew with another --out."
            )

    def _tidy(self) -> None:
        """Take away what an interrupted process left half done; its last checkpoint stays."""
        for path in self.path.iterdir():
            if path.name == HISTORY or path.name.startswith(UNDER_WAY):
                path.unlink()

    @classmethod
    def open(cls, path: Path) -> Run:
        """Open a complete run."""
        if path.is_file():
            raise UserError(f"{str(path)!r} is a file; name the run folder, {str(path.parent)!r}.")
        if not path.is_dir():
            raise UserError(f"There is no run folder {str(path)!r}; check the path.")
        parts = (CONFIG, SPLIT, MODEL, METRICS, INFO)
        missing = [name for name in parts if not (path / name).is_file()]
        if CONFIG in missing and INFO in missing:
            raise UserError(f"The folder {str(path)!r} is not a run; name one that qunlearn wrote.")
        if INFO in missing:
            raise UserError(
                f"The run {str(path)!r} was not finished; go on with it with --resume, by the "
                "command that began it."
            )
        if missing:
            raise UserError(
                f"The run {str(path)!r} has lost its {missing[0]}; restore the file from a copy, "
                "or make the run again."
            )
        return cls(path)

    @staticmethod
    def is_complete(path: Path) -> bool:
        """Whether there is a finished run."""
        return (path / INFO).is_file()

    @staticmethod
    def discard(path: Path, finished: bool = False) -> None:
        """Delete what an interrupted run left, or also a finished one, and nothing else."""
        if not path.is_dir():
            return
        ours = (*PARTS, CHECKPOINT)
        strange = [name for name in _names(path) if name not in ours]
        if strange or (Run.is_complete(path) and not finished):
            raise UserError(f"The folder {str(path)!r} holds more than an unfinished run.")
        shutil.rmtree(path)

    def copy_to(self, path: Path) -> None:
        """Copy a finished run; whatever interrupts it, the copy is complete or is no run."""
        Run.discard(path)
        Run.create(path)
        for name in PARTS:  # the last one makes it complete
            if (self.path / name).is_file():
                write_bytes(path / name, (self.path / name).read_bytes())

    @property
    def model_path(self) -> Path:
        """Where the weights are."""
        return self.path / MODEL

    @property
    def checkpoint_path(self) -> Path:
        """Where the state of a run is kept while it is being made."""
        return self.path / CHECKPOINT

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Keep the settings that make this run again."""
        write_text(self.path / CONFIG, toml.dumps(config))

    def write_split(self, manifest: str) -> None:
        """Keep the split's manifest."""
        write_text(self.path / SPLIT, manifest)

    def append_history(self, row: Mapping[str, Any]) -> None:
        """Add one line to the history."""
        with (self.path / HISTORY).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def write_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Keep the measurements."""
        write_json(self.path / METRICS, metrics)

    def write_predictions(self, logits: Mapping[str, Tensor]) -> None:
        """Keep the model's outputs on each part, from which every figure can be had again."""
        write_weights(self.path / PREDICTIONS, logits, {"parts": list(logits)})

    def write_audit(self, name: str, found: Mapping[str, Any]) -> None:
        """Keep what an audit found, beside what others found."""
        write_json(self.path / AUDIT, {**self.audits, name: found})

    @property
    def audits(self) -> dict[str, Any]:
        """What audits found, by their names."""
        path = self.path / AUDIT
        return dict(read_json(path)) if path.is_file() else {}

    @property
    def has_predictions(self) -> bool:
        """Whether the model's outputs were kept."""
        return (self.path / PREDICTIONS).is_file()

    @property
    def predictions(self) -> dict[str, Tensor]:
        """The model's outputs on each part that was measured; empty if they were not kept."""
        return read_tensors(self.path / PREDICTIONS) if self.has_predictions else {}

    def finish(self, info: Mapping[str, Any]) -> None:
        """Keep timings and what they were measured on; the run is complete with this."""
        written = {**info, "versions": versions(), "machine": machine()}
        if self.model_path.exists():
            written["model_sha256"] = sha256(self.model_path)
        write_json(self.path / INFO, written)
        self.checkpoint_path.unlink(missing_ok=True)

    def check_model(self) -> None:
        """Raise unless the weights are those that the run was finished with."""
        if sha256(self.model_path) != self.info.get("model_sha256"):
            raise UserError(
                f"The file {str(self.model_path)!r} is not the one that the run was finished with; "
                "restore it from a copy, or make the run again."
            )

    @property
    def config(self) -> dict[str, Any]:
        """The settings."""
        config: dict[str, Any] = read(self.path / CONFIG, toml.loads, "TOML")
        return config

    @property
    def split(self) -> str:
        """The split's manifest."""
        return str(read(self.path / SPLIT, str, "text"))

    @property
    def history(self) -> list[dict[str, Any]]:
        """The history, a row for each epoch."""
        if not (self.path / HISTORY).exists():
            return []
        rows: list[dict[str, Any]] = read(
            self.path / HISTORY,
            lambda text: [json.loads(line) for line in text.splitlines()],
            "JSON",
        )
        return rows

    @property
    def metrics(self) -> dict[str, Any]:
        """The measurements."""
        metrics: dict[str, Any] = read_json(self.path / METRICS)
        return metrics

    @property
    def info(self) -> dict[str, Any]:
        """Versions, machine and timings."""
        info: dict[str, Any] = read_json(self.path / INFO)
        return info


def _names(folder: Path) -> list[str]:
    """What is in a folder, but for what a process that was killed leaves there."""
    names = [path.name for path in folder.iterdir()]
    return [name for name in names if name != LOCK and not name.startswith(UNDER_WAY)]


def make_folder(path: Path) -> None:
    """Make a folder for output, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"The output folder {str(path)!r} cannot be made: {error.strerror}; name another one "
            "with --out."
        ) from None


def versions() -> dict[str, str]:
    """The versions of everything that can change a result."""
    from importlib.metadata import version

    names = ("qunlearn", "torch", "numpy", "lightning-fabric", "safetensors", "scikit-learn")
    return {"python": platform.python_version()} | {name: version(name) for name in names}


def machine() -> dict[str, Any]:
    """What the timings were measured on."""
    import torch

    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "workers": _beside,
    }


_beside = 1


def made_beside(workers: int) -> None:
    """Say that this process is one of several that make runs at a time, which slows each down."""
    global _beside
    _beside = workers
