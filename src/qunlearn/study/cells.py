"""The cells of a comparison: one run of forgetting each, made once and kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from qunlearn.errors import Failure, UserError
from qunlearn.methods import find_method
from qunlearn.methods.forget import settings_of
from qunlearn.runs.data_config import DataConfig
from qunlearn.runs.forget import forget_run
from qunlearn.runs.metrics import metrics_of
from qunlearn.runs.provenance import provenance_of, request_of
from qunlearn.runs.recipe import inherited, recipe_of
from qunlearn.runs.request import ForgetConfig
from qunlearn.runs.train import start_digest
from qunlearn.store.place import check_reached
from qunlearn.store.run import Run
from qunlearn.store.start import AnotherRun
from qunlearn.study.config import CELLS, TRIALS, CompareConfig, Settings, folder_name, variant
from qunlearn.study.executors.base import THIS_MACHINE, Executor, Finished, Job
from qunlearn.study.executors.needs import Need, needs_of, recorded_data
from qunlearn.study.progress import StudyProgress
from qunlearn.study.table import CellResult

NAMED = ("run", "start_from", "ids")
"""The settings with which a cell's record names what it was made from."""


@dataclass(frozen=True)
class Cell:
    """A method with its settings and its seed, and the folder that its run is kept in.

    `request` is the digest of the samples that are to be forgotten. `original` is the run whose
    data several cells share, if each of them is made from a run of its own.
    """

    method: str
    seed: int
    config: ForgetConfig
    path: Path
    request: str
    original: Path | None = None

    @property
    def done(self) -> bool:
        """Whether its run is there, with the outputs that the figures come from."""
        return Run.is_complete(self.path) and Run(self.path).has_predictions

    def check(self) -> None:
        """Raise if a link leads there, or there is a finished run of another network or request."""
        check_reached(self.path)
        if not Run.is_complete(self.path):
            return
        origin, run = Run.open(self.config.run), Run.open(self.path)
        if run.info.origin != origin.info.model_sha256:
            raise UserError(
                f"The cell {str(self.path)!r} was made from another network than "
                f"{str(origin.path)!r} holds now; name a new folder with --out."
            )
        if provenance_of(run).request != self.request:
            raise UserError(
                f"The cell {str(self.path)!r} has forgotten other samples than are asked for now; "
                "name a new folder with --out."
            )

    def make(self) -> None:
        """Make it, or resume it where it was interrupted."""
        self.make_at(self.path, {}, None)

    def make_at(self, path: Path, paths: Mapping[str, Path], data: DataConfig | None) -> None:
        """Make it in a folder, from what is at these places here; its record names its own."""
        if self.config.threads:
            torch.set_num_threads(self.config.threads)
        if Run.is_complete(path):
            if Run(path).has_predictions:  # another process has just finished it
                return
            Run.discard(path, finished=True)
        config = self.config.model_copy(update=dict(paths))
        named = {field: getattr(self.config, field) for field in paths if field in NAMED}
        forget = partial(forget_run, config, path, recorded=named, data=data)
        try:
            forget(resume=True)
        except AnotherRun:  # left by a comparison with other settings
            Run.discard(path)
            forget()

    def needs(self) -> tuple[Need, ...]:
        """What it reads."""
        return needs_of(self.config, self.original)

    def place(self) -> DataConfig:
        """Where the data is on this machine."""
        return recorded_data(self.config)


@dataclass(frozen=True)
class Cells:
    """Where the cells of one request are kept; comparisons of the same request may share them."""

    config: CompareConfig
    home: Path
    request: str

    def cell(self, name: str, settings: Settings, seed: int) -> Cell:
        """A cell of the table."""
        return self._at(self.home / CELLS / folder_name(name) / f"seed{seed}", name, settings, seed)

    def trial(self, name: str, settings: Settings, number: int) -> Cell:
        """A trial of a search, on seed 0; what comes back later does not count there."""
        path = self.home / TRIALS / folder_name(name) / f"{number}"
        return self._at(path, name, settings, 0, skip_probe=True)

    def _at(
        self, path: Path, name: str, settings: Settings, seed: int, *, skip_probe: bool = False
    ) -> Cell:
        """The cell at a path; beside it, if a run with other settings, or of old code, is there."""
        values: dict[str, object] = {
            "method": variant(name)[0],
            "settings": {**settings, "seed": seed},
            "skip_probe": skip_probe,
        }
        if values["method"] == "retrain":
            values |= start_of(self.config, seed)
        config = ForgetConfig.parse({**self.config.origin(), **values})
        asked = stated(config)
        if Run.is_complete(path):
            Cell(
                name, seed, config, path, self.request
            ).check()  # of another request, none is beside
            run = Run.open(path)
            start = {"start": provenance_of(run).start}
            recorded = {**run.config, **start, "revision": run.info.revision}
            if {key: recorded.get(key) for key in asked} != asked:
                digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
                path = path.with_name(f"{path.name}-{digest[:8]}")
        return Cell(name, seed, config, path, self.request)


def start_of(config: CompareConfig, seed: int) -> dict[str, Path]:
    """What the Retrain of a seed starts from, if from anything."""
    home = config.retrains_from
    if home is None:
        return {}
    cells = [
        path
        for path in sorted((home / CELLS / "retrain").glob(f"seed{seed}*"))
        if path.name.split("-")[0] == f"seed{seed}" and Run.is_complete(path)
    ]
    if not cells:
        raise UserError(
            f"The comparison {str(home)!r} has no Retrain of seed {seed}; name one that has, or "
            f"make it there with --seeds {seed + 1}."
        )
    if len(cells) > 1:
        raise UserError(
            f"The comparison {str(home)!r} has several Retrains of seed {seed}, made with "
            f"different settings; delete those that are not meant, of {cells[0].name!r} and "
            f"{cells[1].name!r}."
        )
    return {"start_from": cells[0]}


def stated(config: ForgetConfig) -> dict[str, object]:
    """What a run's numbers depend on, but for the network and the request."""
    method = find_method(config.method)
    start = config.start_from
    usual = inherited(recipe_of(Run.open(config.run)), method, start is not None)
    settings = settings_of(method, usual | config.method_settings).to_dict()
    depends_on = {
        "settings": settings,
        "devices": config.devices,
        "precision": config.precision,
        "start": start_digest(start, config.record.start) if start else None,
    }
    # What is as usual is left out, so that cells of earlier versions are found.
    unusual = {name: getattr(config, name) for name in ("nodes", "sync_batchnorm")}
    unusual |= {"revision": method.revision if method.revision > 1 else None}
    return depends_on | {name: value for name, value in unusual.items() if value}


def run_jobs(jobs: Sequence[Job], executor: Executor, title: str) -> list[Run | Failure]:
    """Make those jobs that are not done yet; the runs of all of them, in order.

    A job that was interrupted is resumed.
    """
    for job in jobs:
        job.check()
    missing = [job for job in jobs if not job.done]
    outcomes = dict(make_jobs(missing, executor, title, len(jobs)))
    return [outcomes.get(job.path) or Run.open(job.path) for job in jobs]


def make_jobs(
    jobs: Sequence[Job], executor: Executor, title: str, total: int
) -> Iterator[tuple[Path, Failure | None]]:
    """Hand jobs to the executor; each one's folder and failure, as it finishes."""
    with StudyProgress(title, total, total - len(jobs), executor.out_of_process) as progress:
        executor.submit(jobs)
        waiting = {job.path for job in jobs}
        while waiting:
            for event in executor.events():
                progress.add(event)
                if isinstance(event, Finished):
                    waiting.discard(event.job.path)
                    yield event.job.path, failure_of(event)
            progress.refresh()


def failure_of(event: Finished) -> Failure | None:
    """Why a job failed, with its seed and the node."""
    where = "" if event.where == THIS_MACHINE else f" on {event.where}"
    return Failure(f"seed {event.job.seed}{where}: {event.failure}") if event.failure else None


def result_of(run: Run, seed: int) -> CellResult:
    """What a cell's run came to."""
    info = run.info
    return CellResult(
        seed,
        run.path.name,
        metrics_of(run),
        info.took("forgetting"),
        request_of(run).settings,
        info.machine.threads,
        info.machine.workers,
    )
