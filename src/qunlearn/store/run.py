"""The run folder: what was asked, what it was done on, what came out.

config.toml         the settings; `qunlearn train --config` with it makes the run again
split.json          the manifest: every sample's part and hash, and what was forgotten
model.safetensors   the weights, with everything needed to build the model in the header
history.jsonl       one line for each epoch
metrics.json        accuracy and the other figures
predictions.safetensors   the model's outputs on every part that was measured
checksums.txt       the SHA-256 of every file here; `sha256sum -c checksums.txt` checks them too
run.json            when it was begun and finished, versions, machine, timings; written last, so its
                    presence means "complete"

While a run is being made there are also checkpoint.safetensors, from which it can go on, and .lock.
Files may be added later, as audit.json and a report; they are no part of the run. A file is
compared with its checksum when it is read. Runs of format 1, before there was a checksums.txt, name
no format in run.json; they load as ever, and only their weights are checked.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from qunlearn.dates import utc
from qunlearn.errors import UserError
from qunlearn.store import toml
from qunlearn.store.checksums import read_checksums, write_checksums
from qunlearn.store.files import (
    UNDER_WAY,
    Row,
    append_line,
    json_text,
    make_folder,
    read,
    read_object,
    reading,
    remove,
    sha256,
    sweep,
    write_bytes,
    write_json,
    write_text,
    writing,
)
from qunlearn.store.limits import parse_lines
from qunlearn.store.lock import LOCK, check_unlocked, locked
from qunlearn.store.place import named, names_in, opened
from qunlearn.store.typed import Json, typed, untyped
from qunlearn.store.weights import read_tensors, write_weights

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, SPLIT, MODEL = "config.toml", "split.json", "model.safetensors"
HISTORY, METRICS, INFO = "history.jsonl", "metrics.json", "run.json"
PREDICTIONS, CHECKSUMS = "predictions.safetensors", "checksums.txt"
CHECKPOINT, AUDIT = "checkpoint.safetensors", "audit.json"
PAGE, FIGURES = "report.html", "figures"
FIGURE_NAME = re.compile(r"(gaps|runtime|(confidence|answers|sample|conflict)-.*|image)\.(svg|png)")
"""What the files of figures are called."""
PARTS = (CONFIG, SPLIT, MODEL, HISTORY, METRICS, PREDICTIONS, CHECKSUMS, INFO)
NEEDED = (CONFIG, SPLIT, MODEL, METRICS, INFO)
OLDEST, FORMAT = 1, 2
"""The formats of the run folder that are read, and the one that is written, the newest."""


@dataclass(frozen=True)
class Machine:
    """What timings were measured on."""

    system: str = ""
    processor: str = ""
    cores: int | None = None
    threads: int = 0
    workers: int = 1


@dataclass(frozen=True)
class RunInfo:
    """How a run came about; what stands in `run.json`.

    Attributes:
        seconds: The time that each stage took.
        method: What made the network forget; None for a network that has forgotten nothing.
        revision: The method's revision.
        origin: The digest of the weights before forgetting.
        weights_of: The digest of the run whose weights a run has, where it only retired samples;
            what else stands here of how the network was made is that run's.
        held_out_check: Of an adopted network: whether its held-out samples look unseen.
        declared: Of a Retrain that was trained elsewhere: what was checked about it.
        made_in: "Python" if it was not made by a command.
        begun: When, as ISO 8601.
        finished: When, as ISO 8601.
        versions: Of everything that can change a result.
        machine: What the timings were measured on.
        model_sha256: The digest of the weights.
        format: The format of the run folder.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    method: str | None = None
    revision: int = 1
    origin: str | None = None
    weights_of: str | None = None
    held_out_check: str | None = None
    declared: str | None = None
    made_in: str | None = None
    begun: str | None = None
    finished: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Machine = field(default_factory=Machine)
    model_sha256: str = ""
    format: int = 1

    def took(self, stage: str) -> float:
        """The seconds that a stage took."""
        if stage not in self.seconds:
            raise UserError(
                f"run.json has no time of {stage!r}; restore it from a copy, or make the run again."
            )
        return self.seconds[stage]


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
        if begun and not resume:
            check_unlocked(path)
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
        cls,
        path: Path,
        config: Mapping[str, object],
        manifest: str,
        resume: bool = False,
        places: Container[str] = (),
    ) -> Iterator[Run]:
        """A run to write, with what is known before anything is computed: settings and split.

        It is a new one, or with `resume` the one that is there, which may be finished already. No
        other process can write to it meanwhile. Settings that are `places` only say where something
        is, and may have changed since the run was begun.
        """
        with named(path):
            make_folder(path)
            with locked(path):
                yield cls._begun(path, config, manifest, resume, places)

    @classmethod
    def _begun(
        cls,
        path: Path,
        config: Mapping[str, object],
        manifest: str,
        resume: bool,
        places: Container[str],
    ) -> Run:
        cls.check_free(path, resume)  # another process may have been faster
        run = cls(path)
        run._check_begun_with(config, manifest, places)
        run._tidy()
        if not cls.is_complete(path):
            run._begin(config, places)
            run.write_split(manifest)
        return run

    def _begin(self, config: Mapping[str, object], places: Container[str]) -> None:
        """Keep the settings; the file's date stays that of when the run was begun."""
        file, now = self.path / CONFIG, toml.loads(toml.dumps(config))
        if not file.is_file():
            self.write_config(config)
            return
        begun, then, now = file.stat().st_mtime_ns, _compared(self.config), _compared(now)
        if any(then.get(name) != now.get(name) for name in {**then, **now} if name in places):
            self.write_config(config)
            os.utime(file, ns=(begun, begun), follow_symlinks=False)

    def _check_begun_with(
        self, config: Mapping[str, object], manifest: str, places: Container[str]
    ) -> None:
        """Raise if the folder has a run with other settings, or of other samples."""
        now = _compared(toml.loads(toml.dumps(config)))
        then = _compared(self.config) if (self.path / CONFIG).is_file() else now
        names = (name for name in {**then, **now} if name not in places)
        name = next((name for name in names if then.get(name) != now.get(name)), None)
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
        """Delete what a killed process left; the checkpoint stays as long as it is needed."""
        finished = Run.is_complete(self.path)
        with writing(self.path), opened(self.path) as folder:
            sweep(folder)
        remove(self.path / (CHECKPOINT if finished else HISTORY))

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
                f"The run {str(path)!r} was not finished; go on with it with --resume, by the "
                "command that began it."
            )
        if format_of(path) > 1 and not (path / CHECKSUMS).is_file():
            missing.append(CHECKSUMS)
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
        ours = (*PARTS, CHECKPOINT, AUDIT)
        strange = [name for name in _names(path) if name not in ours]
        if strange or (Run.is_complete(path) and not finished):
            more = f"also holds {strange[0]!r}" if strange else "holds a finished run"
            raise UserError(
                f"The folder {str(path)!r} {more}, which is not to be lost; move it away, or name "
                "another folder with --out."
            )
        check_unlocked(path)
        remove(path / INFO)  # first, so that no part of it passes for a run
        with writing(path), opened(path) as folder:
            for name in names_in(folder):
                os.unlink(name, dir_fd=folder)
        with writing(path), opened(path.parent) as parent:
            os.rmdir(path.name, dir_fd=parent)

    def copy_to(self, path: Path) -> None:
        """Copy a finished run; whatever interrupts it, the copy is complete or is no run."""
        Run.discard(path)
        Run.create(path)
        with writing(path):
            for name in (AUDIT, *PARTS):  # the last one makes it complete
                if (self.path / name).is_file():
                    with reading(self._checked(name)) as file:
                        write_bytes(path / name, file.read())

    @property
    def model_path(self) -> Path:
        """Where the weights are."""
        return self.path / MODEL

    @property
    def checkpoint_path(self) -> Path:
        """Where the state of a run is kept while it is being made."""
        return self.path / CHECKPOINT

    def write_config(self, config: Mapping[str, object]) -> None:
        """Keep the settings that make this run again."""
        write_text(self.path / CONFIG, toml.dumps(config))

    def write_split(self, manifest: str) -> None:
        """Keep the split's manifest."""
        write_text(self.path / SPLIT, manifest)

    def append_history(self, row: Row) -> None:
        """Add one line to the history."""
        append_line(self.path / HISTORY, json.dumps(row))

    def write_metrics(self, metrics: Mapping[str, object]) -> None:
        """Keep the measurements."""
        write_json(self.path / METRICS, metrics)

    def write_predictions(self, logits: Mapping[str, Tensor]) -> None:
        """Keep the model's outputs on each part, from which every figure can be had again."""
        write_weights(self.path / PREDICTIONS, logits, {"parts": list(logits)})

    def write_audit(self, name: str, findings: Mapping[str, object]) -> None:
        """Keep an audit's findings, beside those of others."""
        write_json(self.path / AUDIT, {**self.audits, name: findings})

    @property
    def audits(self) -> dict[str, object]:
        """The findings of audits, by their names."""
        path = self.path / AUDIT
        return read_object(path) if path.is_file() else {}

    @property
    def has_predictions(self) -> bool:
        """Whether the model's outputs were kept."""
        return (self.path / PREDICTIONS).is_file()

    @property
    def predictions(self) -> dict[str, Tensor]:
        """The model's outputs on each part that was measured; empty if they were not kept."""
        if not self.has_predictions:
            return {}
        tensors = read_tensors(self._checked(PREDICTIONS))
        for part, logits in tensors.items():
            if logits.dim() != 2 or not logits.isfinite().all():
                raise UserError(
                    f"The outputs on {part!r} in {str(self.path / PREDICTIONS)!r} are not a finite "
                    "number for each sample and class; restore the file from a copy."
                )
        return tensors

    def finish(self, info: RunInfo) -> None:
        """Write `run.json`, with versions, machine and digests; the run is complete with this."""
        present = [name for name in PARTS if (self.path / name).is_file()]
        sums = {name: sha256(self.path / name) for name in present if name != CHECKSUMS}
        begun, now = self._dates()
        info = replace(info, begun=begun, finished=now, versions=versions(), machine=machine())
        info = replace(info, model_sha256=sums.get(MODEL, ""), format=FORMAT)
        text = json_text(untyped(info))
        # The checksum of run.json too, which is yet to come: only then is everything there.
        sums[INFO] = hashlib.sha256(text.encode()).hexdigest()
        write_checksums(self.path / CHECKSUMS, sums)
        write_text(self.path / INFO, text)
        remove(self.checkpoint_path)

    def _dates(self) -> tuple[str, str]:
        """When the run was begun, however often it was resumed since, and now."""
        config, now = self.path / CONFIG, time.time()
        begun = config.stat().st_mtime if config.is_file() else now
        return utc(begun), utc(now)

    @property
    def checksums(self) -> dict[str, str]:
        """The checksum of each file; of an older run that of the weights, of an unfinished none."""
        if not Run.is_complete(self.path):
            return {}
        if (self.path / CHECKSUMS).is_file():
            return read_checksums(self.path / CHECKSUMS)
        return {MODEL: str(read_object(self.path / INFO).get("model_sha256"))}

    def check_model(self) -> None:
        """Raise unless the weights are those that the run was finished with."""
        self._checked(MODEL)

    def _checked(self, name: str) -> Path:
        """Where one of the files is, once it has been compared with its checksum."""
        path, expected = self.path / name, self.checksums.get(name)
        if expected is not None and sha256(path) != expected:
            raise UserError(
                f"The file {str(path)!r} is not the one that the run was finished with; restore it "
                "from a copy, or make the run again."
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
    def history(self) -> list[Row]:
        """The history, a row for each epoch."""
        if not (self.path / HISTORY).exists():
            return []
        rows: list[Row] = read(self._checked(HISTORY), parse_lines, "JSON")
        return rows

    @property
    def metrics(self) -> Json:
        """The measurements."""
        return read_object(self._checked(METRICS))

    @property
    def info(self) -> RunInfo:
        """How it came about."""
        path = self._checked(INFO)
        return typed(RunInfo, read_object(path), path)


def _compared(config: Mapping[str, object]) -> dict[str, object]:
    """Settings by name, those of the provenance as `provenance.NAME`.

    Those that count only if typed are left out: whether to fetch, and where to cache.

    >>> _compared({"lr": 0.1, "download": True, "provenance": {"origin": "ab"}})
    {'lr': 0.1, 'provenance.origin': 'ab'}
    """
    flat: dict[str, object] = {}
    for name, value in config.items():
        if name == "provenance" and isinstance(value, Mapping):
            flat |= {f"{name}.{key}": each for key, each in value.items()}
        elif name not in ("download", "cache_dir"):
            flat[name] = value
    return flat


def format_of(path: Path) -> int:
    """The format of a finished run; one that this qunlearn cannot read is a `UserError`."""
    number = read_object(path / INFO).get("format", 1)
    if not isinstance(number, int) or not OLDEST <= number <= FORMAT:
        newer = isinstance(number, int) and number > FORMAT
        remedy = "upgrade qunlearn" if newer else "use the version of qunlearn that wrote it"
        raise UserError(
            f"The run {str(path)!r} has format {number!r}, this qunlearn reads {OLDEST} to "
            f"{FORMAT}; {remedy}."
        )
    return number


def _names(folder: Path) -> list[str]:
    """What is in a folder, but for what a process that was killed leaves there."""
    names = [path.name for path in folder.iterdir()]
    return [name for name in names if name != LOCK and not name.startswith(UNDER_WAY)]


def versions() -> dict[str, str]:
    """The versions of everything that can change a result."""
    from importlib.metadata import version

    names = ("qunlearn", "torch", "numpy", "lightning-fabric", "safetensors", "scikit-learn")
    return {"python": platform.python_version()} | {name: version(name) for name in names}


def machine() -> Machine:
    """The machine that it runs on."""
    import torch

    return Machine(
        platform.system(), platform.machine(), os.cpu_count(), torch.get_num_threads(), _beside
    )


_beside = 1


def made_beside(workers: int) -> None:
    """Say that this process is one of several that make runs at a time, which slows each down."""
    global _beside
    _beside = workers
