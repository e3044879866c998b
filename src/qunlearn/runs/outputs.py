"""What a run's model answered, from the predictions that the run has saved."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from qunlearn.data import Split, manifest
from qunlearn.runs.evaluate import figures, predictions
from qunlearn.store.files import as_written
from qunlearn.store.run import Run


def measured_before(run: Run, model: nn.Module, split: Split) -> dict[str, Any]:
    """The figures of a run's model on a later split, from the outputs that the run has kept.

    They are computed anew where they are not kept, or samples were erased since.
    """
    logits = kept_outputs(run, split)
    return figures(predictions(model, split) if logits is None else logits, split)


def kept_outputs(run: Run, split: Split) -> dict[str, Tensor] | None:
    """What a run's model answers on the parts of another split; None if that was not all kept.

    Args:
        run: The run.
        split: Whose parts are asked about; the same samples may be in other parts there. Which
            output belongs to which sample is only known while the data has all that the run used.
    """
    if not manifest.has_all(run.split, split.data):
        return None
    kept, parts = run.predictions, Split.from_json(run.split, split.data).measured()
    if any(part not in kept or len(kept[part]) != len(index) for part, index in parts.items()):
        return None
    table = torch.full((len(split.data), split.data.num_classes), torch.nan)
    with as_written(run.path):
        for part, index in parts.items():
            table[index] = kept[part].float()
    logits = {part: table[index] for part, index in split.measured().items()}
    return None if any(rows.isnan().any() for rows in logits.values()) else logits
