"""The training history: one typed row per epoch, and a line of `history.jsonl` for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import FailFast

from qunlearn.store.typed import Json, typed, untyped

T = TypeVar("T")
Series = Annotated[tuple[T, ...], FailFast()]
"""Values of one kind; the first wrong one ends the validation, as a file may have millions."""


@dataclass(frozen=True)
class ConflictRecord:
    """How the forget and the retain gradient met in the sampled steps of an epoch.

    Attributes:
        layers: The names of the layers (or whatever was projected together).
        steps: The sampled steps of the epoch, from 0.
        share_in_conflict: For each layer, the share of these steps with a cosine below zero.
        cosine: Between the two gradients; steps × layers, as the norms are.
        forget_norm: The length of the forget gradient.
        projected_norm: Its length after the projection.
        retain_norm: The length of the retain gradient.
    """

    layers: Series[str]
    steps: Series[int]
    share_in_conflict: Series[float]
    cosine: Series[Series[float]]
    forget_norm: Series[Series[float]]
    projected_norm: Series[Series[float]]
    retain_norm: Series[Series[float]]


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """A row of the training history.

    Attributes:
        epoch: The number of the epoch, from 1.
        lr: The learning rate of its last step; None if there is none.
        scalars: Means of what its steps reported, such as `loss`, and accuracies after it; in the
            file, they stand beside the other fields.
        seconds: Training time of the epoch; in runs of 0.1.0, since the start.
        elapsed: Training time since the start.
        compiled: Whether the quantizers were compiled; None if it is not on record.
        pushed: Mean weight of the push on forget samples, from 0 to 1; None without a push.
        above: Mean distance of forget samples above their targets, in points; None without a push.
        conflict: Where the two gradients were in conflict; None if nothing was projected.
        collapsed: The quantizers whose scale has collapsed to zero.
    """

    epoch: int
    lr: float | None = None
    scalars: Mapping[str, float] = field(default_factory=dict)
    seconds: float
    elapsed: float
    compiled: bool | None = None
    pushed: float | None = None
    above: float | None = None
    conflict: ConflictRecord | None = None
    collapsed: Series[str] = ()

    def to_json(self) -> Json:
        """The row as a file has it: the scalars beside the rest, and nothing that is empty."""
        row = {name: value for name, value in untyped(self).items() if value != []}
        first = {name: row.pop(name) for name in ("epoch", "lr") if name in row}
        return {**first, **row.pop("scalars"), **row}

    @classmethod
    def from_json(cls, row: object, path: Path) -> Epoch:
        """Validate a row of the file `path`; what has no field of its own is a scalar."""
        if isinstance(row, dict):
            columns = {each.name for each in fields(cls)} - {"scalars"}
            scalars: dict[str, float] = {}
            for name, value in row.items():
                if name not in columns:  # one by one, to stop at the first error
                    scalars |= typed(dict[str, float], {name: value}, path)
            known = {name: value for name, value in row.items() if name in columns}
            # 0.1.0 wrote the seconds since the start alone.
            row = {"elapsed": row.get("seconds"), **known, "scalars": scalars}
        return typed(cls, row, path)
