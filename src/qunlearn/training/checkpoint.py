"""Going on where a run was interrupted: the state of the loop, in one file.

What comes of it is the same, bit for bit, as if nothing had happened: everything that a step
depends on is in the file, or follows from the settings, the epoch and the step.
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
from qunlearn.store.files import Row
from qunlearn.store.weights import read_header, read_tensors, write_weights
from qunlearn.training.config import MOST_THREADS

EVERY = 60.0
"""Seconds after which the state is kept within an epoch, too."""

TABLES = ("model", "momentum", "total", "own")
"""What the tensors of a checkpoint are: their names begin with one of these."""

SHARE = 0.01
"""The largest share of the time that goes into keeping it."""


@dataclass
class State:
    """Where the loop is, and everything that its next step depends on.

    Attributes:
        epoch: The epoch that is under way.
        step: The next step of it.
        seconds: The time taken so far.
        compiled: Whether the quantizers are.
        rows: What was reported of the epochs before.
        totals: The sums of what the epoch's steps have reported.
        own: What the objective remembers within an epoch.
    """

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    compiled: bool = False
    rows: list[Row] = field(default_factory=list)
    totals: dict[str, Tensor] = field(default_factory=dict)
    own: Mapping[str, Tensor] = field(default_factory=dict)


class Checkpointer:
    """Keeps the state of a loop in a file now and then, and finds it again.

    Args:
        path: The file.
        key: What is being made; a file of something else is refused.
    """

    def __init__(self, path: Path, key: str):
        self.path, self.key = path, key
        self.seconds_before = 0.0
        self._claimed = False
        self._begun = self._last = time.perf_counter()
        self._spent = self._cost = 0.0

    def claim(self) -> Checkpointer | None:
        """Itself for the first loop that asks, None for later ones: those are run again."""
        claimed, self._claimed = self._claimed, True
        return None if claimed else self

    def due(self, epoch_ended: bool = False) -> bool:
        """Whether it is time to keep the state: by the clock, by the epoch and by what it costs."""
        now = time.perf_counter()
        if not epoch_ended and now - self._last < EVERY:
            return False
        return self._spent + self._cost <= SHARE * (now - self._begun)

    def save(
        self, state: State, model: nn.Module, optimizer: torch.optim.Optimizer, fabric: Fabric
    ) -> None:
        """Write the state, in place of the one before."""
        started = time.perf_counter()
        momenta = {
            str(i): optimizer.state[p]["momentum_buffer"]
            for i, p in enumerate(_parameters(optimizer))
            if optimizer.state[p].get("momentum_buffer") is not None
        }
        tables = dict(
            zip(TABLES, (model.state_dict(), momenta, state.totals, state.own), strict=True)
        )
        tensors = {f"{t}/{name}": v for t, table in tables.items() for name, v in table.items()}
        plain = {
            "epoch": state.epoch,
            "step": state.step,
            "seconds": state.seconds,
            "compiled": state.compiled,
            "rows": state.rows,
        }
        # A state that has gone wrong is no state to go on from: the one before stays.
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
        """Put everything back as it was kept, and say where that is; None if nothing was."""
        if not self.path.exists():
            return None
        damaged = UserError(
            f"The checkpoint {str(self.path)!r} is damaged; delete it, and --resume begins the run "
            "from its start."
        )
        try:
            header, tensors = read_header(self.path), read_tensors(self.path)
        except UserError:
            raise damaged from None
        if header.pop("sum", None) != digest(tensors, header):
            raise damaged
        if header["key"] != self.key:
            raise UserError(
                f"The checkpoint {str(self.path)!r} is of something else than is to be made now: "
                "other settings, data or network, or an earlier version of the method; restore "
                "those, or begin anew without it."
            )
        tables: dict[str, dict[str, Tensor]] = {name: {} for name in TABLES}
        for name, tensor in tensors.items():
            table, _, rest = name.partition("/")
            tables[table][rest] = tensor.to(fabric.device)
        _check(header)
        # The number of threads decides in which order sums are taken, and so their last bits.
        torch.set_num_threads(header["threads"])
        model.load_state_dict(tables["model"])
        for i, parameter in enumerate(_parameters(optimizer)):
            if str(i) in tables["momentum"]:
                # Laid out in memory as the parameter is.
                momentum = torch.empty_like(parameter).copy_(tables["momentum"][str(i)])
                optimizer.state[parameter]["momentum_buffer"] = momentum
        fabric._precision.load_state_dict(header["precision"])
        state = State(**header["state"], totals=tables["total"], own=tables["own"])
        self.seconds_before = state.seconds
        return state


def fingerprint(model: nn.Module, *rest: object) -> str:
    """What is being made, in one word: from these weights, with these settings and samples."""
    return digest(model.state_dict(), *rest)


def digest(tensors: Mapping[str, Tensor], *rest: object) -> str:
    """The SHA-256 of tensors by their names, and of whatever else."""
    made = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        made.update(f"{name} {list(tensor.shape)} {tensor.dtype}".encode())
        made.update(_bytes(tensor))
    for value in rest:
        made.update(_bytes(value) if isinstance(value, Tensor) else repr(value).encode())
    return made.hexdigest()


def _check(header: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for a header that a stranger may have written, with sums that agree."""
    state = header["state"]
    kinds = {"epoch": int, "step": int, "seconds": float, "compiled": bool, "rows": list}
    wrong = [name for name, kind in kinds.items() if type(state[name]) is not kind]
    wrong += [
        name for name in ("epoch", "step", "seconds") if name not in wrong and state[name] < 0
    ]
    if type(header["threads"]) is not int or not 1 <= header["threads"] <= MOST_THREADS:
        wrong.append("threads")
    if wrong or not all(isinstance(row, dict) for row in state["rows"]):
        raise ValueError(f"{(*wrong, 'rows')[0]} of an impossible value")


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]
