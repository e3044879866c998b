"""Checkpoints of the training loop, for resuming an interrupted run.

A resumed run gives the same result, bit for bit, as an uninterrupted one: everything that a step
depends on is in the checkpoint, or follows from the settings, the epoch and the step.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from qunlearn.errors import UserError
from qunlearn.store.history import Epoch
from qunlearn.store.weights import read_header, read_tensors, write_weights
from qunlearn.training.config import MOST_THREADS

EVERY = 60.0
"""Seconds between two checkpoints within an epoch."""

TABLES = ("model", "momentum", "total", "own")
"""Prefixes of the tensor names in a checkpoint."""

SHARE = 0.01
"""Maximum fraction of the run time that is spent on writing checkpoints."""


@dataclass
class State:
    """The position of the loop, and everything else that its next step depends on.

    Attributes:
        epoch: The current epoch, from 0.
        step: The next step of that epoch, from 0.
        seconds: Training time so far.
        compiled: Whether the quantizers are compiled.
        rows: The history of the previous epochs.
        totals: Sums of the scalars that the steps of this epoch reported.
        objective: The objective's state within an epoch.
    """

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    compiled: bool = False
    rows: list[Epoch] = field(default_factory=list)
    totals: dict[str, Tensor] = field(default_factory=dict)
    objective: Mapping[str, Tensor] = field(default_factory=dict)


class Checkpointer:
    """Saves the state of a training loop periodically, and restores it.

    Args:
        path: The checkpoint file.
        key: Fingerprint of model, settings and samples; a checkpoint with another is refused.
    """

    def __init__(self, path: Path, key: str):
        self.path, self.key = path, key
        self.seconds_before = 0.0
        self._claimed = False
        self._begun = self._last = time.perf_counter()
        self._spent = self._cost = 0.0

    def claim(self) -> Checkpointer | None:
        """Return itself for the first loop of a run, None for later ones, which are repeated."""
        claimed, self._claimed = self._claimed, True
        return None if claimed else self

    def due(self, epoch_ended: bool = False) -> bool:
        """Whether to save now: at the end of an epoch or after `EVERY` seconds, within `SHARE`."""
        now = time.perf_counter()
        if not epoch_ended and now - self._last < EVERY:
            return False
        return self._spent + self._cost <= SHARE * (now - self._begun)

    def save(
        self, state: State, model: nn.Module, optimizer: torch.optim.Optimizer, fabric: Fabric
    ) -> None:
        """Write the state, replacing the previous checkpoint."""
        started = time.perf_counter()
        momenta = {
            str(i): optimizer.state[p]["momentum_buffer"]
            for i, p in enumerate(_parameters(optimizer))
            if optimizer.state[p].get("momentum_buffer") is not None
        }
        tables = dict(
            zip(TABLES, (model.state_dict(), momenta, state.totals, state.objective), strict=True)
        )
        tensors = {f"{t}/{name}": v for t, table in tables.items() for name, v in table.items()}
        plain = {
            "epoch": state.epoch,
            "step": state.step,
            "seconds": state.seconds,
            "compiled": state.compiled,
            "rows": [row.to_json() for row in state.rows],
        }
        # A non-finite state is not saved: the previous checkpoint stays.
        if all(torch.isfinite(v).all() for v in tensors.values() if v.is_floating_point()):
            header = {"key": self.key, "threads": torch.get_num_threads(), "state": plain}
            header["precision"] = fabric._precision.state_dict()
            write_weights(self.path, tensors, {**header, "sum": digest(tensors, header)})
        self._last = time.perf_counter()
        self._cost = self._last - started
        self._spent += self._cost

    def restore(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, fabric: Fabric
    ) -> State | None:
        """Restore model, optimizer and precision from the checkpoint; None if there is none.

        Rank 0 reads it and sends it to the others, which may be on machines without the file.
        """
        loaded = self._read() if fabric.world_size == 1 else self._sent(fabric)
        if loaded is None:
            return None
        header, tensors = loaded
        tables: dict[str, dict[str, Tensor]] = {name: {} for name in TABLES}
        for name, tensor in tensors.items():
            table, _, rest = name.partition("/")
            tables[table][rest] = tensor.to(fabric.device)
        _check(header)
        rows = [Epoch.from_json(row, self.path) for row in header["state"].pop("rows")]
        # The number of threads determines the order of summation, and so the last bits of sums.
        torch.set_num_threads(header["threads"])
        model.load_state_dict(tables["model"])
        for i, parameter in enumerate(_parameters(optimizer)):
            if str(i) in tables["momentum"]:
                # With the memory layout of the parameter.
                momentum = torch.empty_like(parameter).copy_(tables["momentum"][str(i)])
                optimizer.state[parameter]["momentum_buffer"] = momentum
        fabric._precision.load_state_dict(header["precision"])
        state = State(**header["state"], rows=rows, totals=tables["total"], objective=tables["own"])
        self.seconds_before = state.seconds
        return state

    def _sent(self, fabric: Fabric) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """What rank 0 reads; its error is raised in every process."""
        loaded: Any = None
        if fabric.is_global_zero:
            try:
                loaded = self._read()
            except UserError as error:
                loaded = error
        loaded = fabric.broadcast(loaded)
        if isinstance(loaded, UserError):
            raise loaded
        return None if loaded is None else (loaded[0], loaded[1])

    def _read(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Header and tensors of the checkpoint, checked; None if there is none."""
        if not self.path.exists():
            return None
        damaged = UserError(
            f"The checkpoint {str(self.path)!r} is damaged; delete it, and --resume restarts the "
            "run from its first step."
        )
        try:
            header, tensors = read_header(self.path), read_tensors(self.path)
        except UserError:
            raise damaged from None
        if header.pop("sum", None) != digest(tensors, header):
            raise damaged
        if header["key"] != self.key:
            raise UserError(
                f"The checkpoint {str(self.path)!r} does not match this run: it has other "
                "settings, data or weights, or another revision of the method. Restore those, or "
                "delete the checkpoint to restart."
            )
        return header, tensors


def fingerprint(model: nn.Module, *rest: object) -> str:
    """The key of a run: a digest of initial weights, settings and samples."""
    return digest(model.state_dict(), *rest)


def digest(tensors: Mapping[str, Tensor], *rest: object) -> str:
    """The SHA-256 of named tensors and further values."""
    sha = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        sha.update(f"{name} {list(tensor.shape)} {tensor.dtype}".encode())
        sha.update(_bytes(tensor))
    for value in rest:
        sha.update(_bytes(value) if isinstance(value, Tensor) else repr(value).encode())
    return sha.hexdigest()


def _check(header: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for a header with invalid values, which may be forged."""
    state = header["state"]
    kinds = {"epoch": int, "step": int, "seconds": float, "compiled": bool, "rows": list}
    invalid = [name for name, kind in kinds.items() if type(state[name]) is not kind]
    invalid += [
        name for name in ("epoch", "step", "seconds") if name not in invalid and state[name] < 0
    ]
    if type(header["threads"]) is not int or not 1 <= header["threads"] <= MOST_THREADS:
        invalid.append("threads")
    if invalid:
        raise ValueError(f"{invalid[0]} has an invalid value")


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]
