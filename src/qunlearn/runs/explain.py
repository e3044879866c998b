"""Where forgetting and retaining were in conflict, from a run's history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from qunlearn.errors import UserError
from qunlearn.store.files import as_written
from qunlearn.store.history import ConflictRecord
from qunlearn.store.run import Run
from qunlearn.store.typed import Json


@dataclass(frozen=True)
class Conflict:
    """How the two gradients met, over a whole run.

    Attributes:
        layers: The names of the layers (or whatever was projected together).
        steps: The sampled steps, as epochs since the start.
        cosine: Between the forget and the retain gradient; layers × steps.
        kept: The share of the forget gradient's length that the projection left; layers × steps.
    """

    layers: tuple[str, ...]
    steps: tuple[float, ...]
    cosine: Tensor
    kept: Tensor

    def in_conflict(self) -> Tensor:
        """For each layer, the share of sampled steps in which the cosine was below zero."""
        return (self.cosine < 0).double().mean(1)

    def to_dict(self) -> Json:
        """Plain values: one entry for each layer."""
        rows = zip(
            self.layers,
            self.in_conflict().tolist(),
            self.cosine.mean(1).tolist(),
            self.kept.mean(1).tolist(),
            strict=True,
        )
        return {
            "sampled_steps": len(self.steps),
            "layers": [
                {"layer": a, "share_in_conflict": b, "mean_cosine": c, "length_kept": d}
                for a, b, c, d in rows
            ],
        }

    def halves(self) -> tuple[float, float] | None:
        """The share in conflict in the run's first half and second; None if it has one step."""
        middle = self.cosine.shape[1] // 2
        if not middle:
            return None
        first, second = self.cosine[:, :middle], self.cosine[:, middle:]
        return (first < 0).double().mean().item(), (second < 0).double().mean().item()


def conflict_of(path: Path) -> Conflict:
    """Read a run's record of conflict."""
    history = Run.open(path).history
    records = [(row.epoch, row.conflict) for row in history if row.conflict is not None]
    if not records:
        raise UserError(
            f"The run {str(path)!r} has no record of conflict: only methods that project the "
            "gradient write one; name a run made by --method oeu."
        )
    with as_written(path):
        return _joined(records)


def _joined(records: Sequence[tuple[int, ConflictRecord]]) -> Conflict:
    layers = records[0][1].layers
    cosine, before, after = (
        torch.tensor([step for _, record in records for step in getattr(record, name)]).mT
        for name in ("cosine", "forget_norm", "projected_norm")
    )
    longest = max(step for _, record in records for step in record.steps) + 1
    steps = tuple(epoch - 1 + step / longest for epoch, record in records for step in record.steps)
    kept = torch.where(before > 0, after / before.clamp_min(1e-30), 1.0)
    if not cosine.shape == kept.shape == (len(layers), len(steps)):
        raise ValueError("not one number for each layer and step")
    return Conflict(layers, steps, cosine, kept)
