"""The cells of a comparison: one run of forgetting each, made once and kept."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from qunlearn.errors import Failure, UserError
from qunlearn.methods import find_method
from qunlearn.methods.config import ForgetConfig
from qunlearn.methods.forget import forget_run, inherited, recipe_of, settings_of
from qunlearn.store.run import Run
from qunlearn.training.progress import Progress


@dataclass(frozen=True)
class Cell:
    """A method with its settings and its seed, and the folder that its run is kept in.

    `asked` is the digest of the samples that are to be forgotten.
    """

    method: str
    seed: int
    config: ForgetConfig
    path: Path
    asked: str

    def check(self) -> None:
        """Raise if there is a finished run of another network, request or settings."""
        if not Run.is_complete(self.path):
            return
        origin, run = Run.open(self.config.run), Run.open(self.path)
        if run.info["origin"] != origin.info["model_sha256"]:
            raise UserError(
                f"The cell {str(self.path)!r} was made from another network than "
                f"{str(origin.path)!r} holds now; name a new folder with --out."
            )
        if run.config.get("asked") != self.asked:
            raise UserError(
                f"The cell {str(self.path)!r} has forgotten other samples than are asked for now: "
                "the list or the metadata has changed; name a new folder with --out."
            )
        method = find_method(self.config.method)
        usual = inherited(recipe_of(origin.config), method)
        wanted = settings_of(method, usual | self.config.method_settings).to_dict()
        found = run.config["settings"]
        for name in sorted(wanted.keys() | found.keys()):
            if wanted.get(name) != found.get(name):
                raise UserError(
                    f"The cell {str(self.path)!r} was made with {name} = {found.get(name)!r}, not "
                    f"{wanted.get(name)!r}; remove it, or name a new folder with --out."
                )


def run_cells(cells: Sequence[Cell], workers: int, title: str) -> list[Run]:
    """Make those cells that are not there yet, `workers` of them at a time; all of them, in order.

    A cell that was interrupted is made again from its start.
    """
    for cell in cells:
        cell.check()
    missing = [cell for cell in cells if not Run.is_complete(cell.path)]
    with Progress(title, len(cells), len(missing) > 0) as progress:
        progress.advance(len(cells) - len(missing))
        for cell in _made(missing, workers):
            progress.show({f"{cell.method} seed": cell.seed})
            progress.advance()
    return [Run.open(cell.path) for cell in cells]


def _made(cells: Sequence[Cell], workers: int) -> Iterable[Cell]:
    """The cells as they get done."""
    if workers == 1:
        for cell in cells:
            _make(cell)
            yield cell
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        waiting = {pool.submit(_make, cell): cell for cell in cells}
        try:
            for done in as_completed(waiting):
                done.result()
                yield waiting[done]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _make(cell: Cell) -> None:
    if cell.config.threads:
        torch.set_num_threads(cell.config.threads)
    Run.discard(cell.path)
    try:
        forget_run(cell.config, cell.path)
    except Failure as failure:
        raise Failure(f"{cell.method} with seed {cell.seed}: {failure}") from None


def figures_of(run: Run) -> dict[str, Any]:
    """What a cell's run says of itself, as a table keeps it."""
    return {
        "metrics": run.metrics,
        "seconds": run.info["seconds"]["forgetting"],
        "settings": run.config["settings"],
    }
