"""A record of where the forget and the retain gradient were in conflict."""

from __future__ import annotations

from typing import Any

import torch

from qunlearn.gradients import LayerConflict

PER_EPOCH = 8
"""How many steps of an epoch are measured."""


class ConflictLog:
    """Keeps some steps' measurements, evenly over the epoch, until they are reported."""

    def __init__(self, steps: int):
        self.every = -(-steps // PER_EPOCH)
        self.due = 0
        self.kept: list[tuple[int, LayerConflict]] = []

    def wants(self, step: int) -> bool:
        """Whether this step is to be measured."""
        return step >= self.due

    def add(self, step: int, met: LayerConflict) -> None:
        """Keep a step's measurement, and wait for the next one's turn."""
        self.kept.append((step, met))
        self.due = step - step % self.every + self.every

    def report(self) -> dict[str, Any]:
        """The epoch's record, for the history: one list of layers' values for each sampled step."""
        kept, self.kept, self.due = self.kept, [], 0
        if not kept:
            return {}
        cosines = torch.stack([met.cosine for _, met in kept])
        tables = {
            "cosine": cosines,
            "forget_norm": torch.stack([met.forget_norm for _, met in kept]),
            "projected_norm": torch.stack([met.projected_norm for _, met in kept]),
            "retain_norm": torch.stack([met.retain_norm for _, met in kept]),
        }
        record = {name: [_short(row) for row in table.tolist()] for name, table in tables.items()}
        return {
            "conflict": {
                "layers": list(kept[0][1].names),
                "steps": [step for step, _ in kept],
                "share_in_conflict": _short((cosines < 0).float().mean(0).tolist()),
                **record,
            }
        }


def _short(values: list[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
