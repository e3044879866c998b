"""A record of where the forget and the retain gradient were in conflict."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from qunlearn.gradients import LayerConflict
from qunlearn.store.history import ConflictRecord

NUMBERS = ("cosine", "forget_norm", "projected_norm", "retain_norm")

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

    def state(self) -> dict[str, Tensor]:
        """What is kept so far."""
        if not self.kept:
            return {}
        tables = {n: torch.stack([getattr(met, n) for _, met in self.kept]) for n in NUMBERS}
        return {"steps": torch.tensor([step for step, _ in self.kept]), **tables}

    def restore(self, state: Mapping[str, Tensor], names: tuple[str, ...]) -> None:
        """Restore what `state` returned, of layers with these names."""
        for i, step in enumerate(state["steps"].tolist() if state else []):
            self.add(step, LayerConflict(names, **{n: state[n][i] for n in NUMBERS}))

    def report(self) -> ConflictRecord | None:
        """The epoch's record, for the history: one list of layers' values for each sampled step."""
        kept, tables = self.kept, self.state()
        self.kept, self.due = [], 0
        if not kept:
            return None
        return ConflictRecord(
            layers=kept[0][1].names,
            steps=tuple(tables["steps"].tolist()),
            share_in_conflict=_short((tables["cosine"] < 0).float().mean(0).tolist()),
            **{name: tuple(map(_short, tables[name].tolist())) for name in NUMBERS},
        )


def _short(values: list[float]) -> tuple[float, ...]:
    return tuple(float(f"{value:.4g}") for value in values)
