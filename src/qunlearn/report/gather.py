"""What a report needs from the disk: outputs before and after, with the true labels."""

from __future__ import annotations

import os
from pathlib import Path

from torch import Tensor

from qunlearn.data import Split
from qunlearn.errors import UserError
from qunlearn.report.drawing import Drawn
from qunlearn.report.outputs import Outputs
from qunlearn.runs.evaluate import labels_of
from qunlearn.runs.origin import origin_of
from qunlearn.runs.outputs import stored_outputs
from qunlearn.store.files import make_folder, remove, write_bytes, write_text
from qunlearn.store.layout import FIGURE_NAME, FIGURES, PAGE
from qunlearn.store.place import check_reached, named
from qunlearn.store.run import Run


def outputs_after(run: Run, labels: dict[str, Tensor]) -> Outputs | None:
    """The outputs of a run's model, if they are stored."""
    return Outputs.of(run.predictions, labels)


def outputs_before(run: Run, split: Split) -> Outputs | None:
    """What the model answered before forgetting; None if its run is no longer available."""
    origin = origin_of(run)
    logits = None if origin is None else stored_outputs(origin, split)
    return None if logits is None else Outputs.of(logits, labels_of(split))


def check_writable(path: Path) -> None:
    """Raise unless a report can be written into the folder; touches nothing."""
    if not os.access(path, os.W_OK | os.X_OK):
        raise UserError(f"The folder {str(path)!r} cannot be written; give yourself permission.")
    with named(path):
        check_reached(path / FIGURES)


def keep(path: Path, page: str, figures: list[Drawn]) -> Path:
    """Write the page, and its figures beside it; those of an earlier page go."""
    with named(path):
        make_folder(path / FIGURES)
        for earlier in (path / FIGURES).iterdir():
            if FIGURE_NAME.fullmatch(earlier.name):
                remove(earlier)
        for figure in figures:
            write_text(path / FIGURES / f"{figure.name}.svg", figure.svg)
            write_bytes(path / FIGURES / f"{figure.name}.png", figure.png)
        write_text(path / PAGE, page)
    return path / PAGE
