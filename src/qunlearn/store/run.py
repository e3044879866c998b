"""The run folder: what was asked, what it was done on, what came out.

config.toml         the settings; `qunlearn train --config` with it makes the run again
split.json          the manifest: every sample's part and hash, and what was forgotten
model.safetensors   the weights, with everything needed to build the model in the header
history.jsonl       one line for each epoch
metrics.json        accuracy and the other figures
predictions.safetensors   the model's outputs on every part that was measured
audit.json          what audits found, by their names; only if one was made
run.json            versions, machine, timings; written last, so its presence means "complete"
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qunlearn.errors import UserError
from qunlearn.store import toml
from qunlearn.store.files import read, read_json, sha256, write_bytes, write_json, write_text
from qunlearn.store.weights import read_tensors, write_weights

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, SPLIT, MODEL = "config.toml", "split.json", "model.safetensors"
HISTORY, METRICS, INFO = "history.jsonl", "metrics.json", "run.json"
PREDICTIONS, AUDIT = "predictions.safetensors", "audit.json"
PARTS = (CONFIG, SPLIT, MODEL, HISTORY, METRICS, PREDICTIONS, AUDIT, INFO)


class Run:
    """A run folder. `Run.create` begins one, `Run.open` reads one that is complete."""

    def __init__(self, path: Path):
        self.path = path

    @staticmethod
    def check_free(path: Path) -> None:
        """Raise unless a run could be written to `path`; touches nothing."""
        try:
            exists = path.exists()
        except OSError as error:
            raise UserError(
                f"The output {str(path)!r} is no possible path: {error.strerror}; name another one "
                "with --out."
            ) from None
        if exists and not path.is_dir():
            raise UserError(f"The output {str(path)!r} is a file; name a new folder with --out.")
        if path.is_dir() and any(path.iterdir()):
            raise UserError(
                f"The output folder {str(path)!r} is not empty; name a new one with --out."
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
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"The output folder {str(path)!r} cannot be made: {error.strerror}; name another "
                "one with --out."
            ) from None
        return cls(path)

    @classmethod
    def begin(cls, path: Path, config: Mapping[str, Any], manifest: str) -> Run:
        """Begin a run with what is known before anything is computed: settings and split."""
        run = cls.create(path)
        run.write_config(config)
        run.write_split(manifest)
        return run

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
                f"The run {str(path)!r} was not finished; make it again, with --config "
                f"{str(path / CONFIG)!r} and a new --out."
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
        # Files under way begin with a dot and the name that they are to get.
        ours = tuple(f".{name}." for name in PARTS)
        strange = [
            p.name for p in path.iterdir() if p.name not in PARTS and not p.name.startswith(ours)
        ]
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
