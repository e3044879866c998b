"""What a report needs from the disk: outputs before and after, with the true labels."""

from __future__ import annotations

import os
import re
from pathlib import Path

from torch import Tensor

from qunlearn.data import Split
from qunlearn.errors import UserError
from qunlearn.report.drawing import Drawn
from qunlearn.report.outputs import Outputs
from qunlearn.store.files import write_bytes, write_text
from qunlearn.store.run import Run
from qunlearn.training.evaluate import kept_outputs, labels_of, origin_of

PAGE, FIGURES = "report.html", "figures"
OURS = re.compile(r"(gaps|runtime|(confidence|answers|sample|conflict)-.*|image)\.(svg|png)")
"""What the files of figures are called."""


def outputs_of(run: Run, labels: dict[str, Tensor]) -> Outputs | None:
    """What a run's model answers, if it was kept."""
    return Outputs.of(run.predictions, labels)


def outputs_before(run: Run, split: Split) -> Outputs | None:
    """What the model answered before forgetting; None if its run is not at hand any more."""
    origin = origin_of(run)
    # The run before knows nothing of samples that were erased since.
    if origin is None or not split.erased.keys().isdisjoint(split.requests[-1].ids):
        return None
    logits = kept_outputs(origin, Split.from_json(origin.split, split.data), split)
    return None if logits is None else Outputs.of(logits, labels_of(split))


def check_writable(path: Path) -> None:
    """Raise unless a report can be written into the folder; touches nothing."""
    if not os.access(path, os.W_OK | os.X_OK):
        raise UserError(f"The folder {str(path)!r} cannot be written; give yourself permission.")
    if (path / FIGURES).is_file():
        raise UserError(f"{str(path / FIGURES)!r} is a file; move it away, the figures go there.")


def keep(path: Path, page: str, figures: list[Drawn]) -> Path:
    """Write the page, and its figures beside it; those of an earlier page go."""
    if not (path / FIGURES).is_dir():
        Run.create(path / FIGURES)
    for earlier in (path / FIGURES).iterdir():
        if OURS.fullmatch(earlier.name):
            earlier.unlink()
    for figure in figures:
        write_text(path / FIGURES / f"{figure.name}.svg", figure.svg)
        write_bytes(path / FIGURES / f"{figure.name}.png", figure.png)
    write_text(path / PAGE, page)
    return path / PAGE
