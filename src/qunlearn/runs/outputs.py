"""What a run's model answered, from the predictions that the run has saved."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from qunlearn.data import Split, manifest
from qunlearn.data.manifest_key import ManifestKey
from qunlearn.errors import UserError
from qunlearn.metrics import Scores
from qunlearn.runs.evaluate import predictions, scores_of
from qunlearn.store.run import Run


def measured_before(run: Run, model: nn.Module, split: Split) -> Scores:
    """The scores of a run's model on a later split, from the outputs that the run stores.

    Outputs that are not stored are computed anew; so are those of a run with erased samples.
    """
    logits = stored_outputs(run, split)
    return scores_of(predictions(model, split) if logits is None else logits, split)


def outputs_of(run: Run, split: Split) -> dict[str, Tensor]:
    """What a run's model answers on every part of its split; raises if that was not all saved."""
    outputs = run.predictions
    for part, index in split.measured().items():
        if part not in outputs or outputs[part].shape != (len(index), split.data.num_classes):
            raise UserError(
                f"The run {str(run.path)!r} has no output for each sample of the part {part!r}; "
                "make it again."
            )
    return outputs


def _split(run: Run, other: Split) -> Split:
    """The split of a run, with the data of another split."""
    return Split.from_json(run.split, other.data, ManifestKey.read(run.path))


def stored_outputs(run: Run, split: Split) -> dict[str, Tensor] | None:
    """What a run's model answers on the parts of another split; None unless all are stored.

    Args:
        run: The run.
        split: Whose parts are asked about; the same samples may be in other parts there. Which
            output belongs to which sample is only known while the data has all that the run used.
    """
    if not manifest.has_all(run.split, split.data):
        return None
    stored, parts = run.predictions, _split(run, split).measured()
    classes = split.data.num_classes
    for part, index in parts.items():
        if part not in stored or stored[part].shape != (len(index), classes):
            return None
    table = torch.full((len(split.data), classes), torch.nan)
    for part, index in parts.items():
        table[index] = stored[part].float()
    logits = {part: table[index] for part, index in split.measured().items()}
    return None if any(rows.isnan().any() for rows in logits.values()) else logits
