"""What an audit looks at: the networks of a request, and its split."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from lightning_fabric import Fabric
from torch import nn

from qunlearn.audit.config import AuditConfig
from qunlearn.data import Split
from qunlearn.errors import UserError
from qunlearn.quant import QuantSpec
from qunlearn.runs.data import split_of
from qunlearn.runs.metrics import Declared
from qunlearn.runs.model_file import Header, load
from qunlearn.runs.origin import origin_of
from qunlearn.runs.reference import check_present, check_reference, check_test, declared
from qunlearn.store.run import Run
from qunlearn.training.config import ComputeConfig
from qunlearn.training.devices import make_fabric

T = TypeVar("T")


@dataclass
class Controls:
    """What was made of Retrains, for the audits of several networks beside them in one process.

    Attributes:
        saved: The seconds that this has saved: an audit alone would take so much longer.
    """

    saved: float = 0.0
    _made: dict[str, tuple[Any, float]] = field(default_factory=dict)

    def trace(self, digest: str, make: Callable[[], T]) -> T:
        """What was made before from what has the digest; else it is made now.

        >>> controls = Controls()
        >>> [controls.trace("ab", lambda: number) for number in (1, 2)]
        [1, 1]
        """
        if digest in self._made:
            made, seconds = self._made[digest]
            self.saved += seconds
        else:
            started = time.perf_counter()
            made = make()
            self._made[digest] = made, time.perf_counter() - started
        return made  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Case:
    """A request to forget, with the networks that an audit may use.

    Attributes:
        model: The network that has forgotten.
        split: What was forgotten, and what is retained.
        before: The network before forgetting; None if it is not at hand.
        retrain: A network trained without the forgotten samples; None if there is none.
        quant: How the networks are quantized.
        same_bits: Whether the Retrain is quantized as the network is.
        declared: What is known of a Retrain that was trained elsewhere.
        retrain_seconds: How long Retrain took; without one, how long training took.
        run: The run folder of the network; None for networks in memory.
        fabric: The devices.
        seed: Seed of whatever an audit draws.
        controls: What audits of other networks beside the same Retrain made of it; None unless
            they share it.
    """

    model: nn.Module
    split: Split
    before: nn.Module | None = None
    retrain: nn.Module | None = None
    quant: QuantSpec = field(default_factory=QuantSpec)
    same_bits: bool = True
    declared: Declared | None = None
    retrain_seconds: float | None = None
    run: Run | None = None
    fabric: Fabric = field(default_factory=lambda: make_fabric(ComputeConfig()))
    seed: int = 0
    controls: Controls | None = None


def case_of(path: Path, settings: AuditConfig) -> Case:
    """The case of a run that has forgotten; raises whatever is wrong with it or its reference."""
    run = Run.open(path)
    split = split_of(run, settings.data)
    if split.last is None:
        raise UserError(
            f"The run {str(path)!r} has forgotten nothing; name one that `qunlearn forget` wrote."
        )
    check_test(split)
    check_present(run, split)
    retrain = None if settings.reference is None else Run.open(settings.reference)
    if retrain is not None:
        check_reference(run, split, retrain)
    origin = origin_of(run)
    factory, quant = settings.model, Header.read(run.model_path).quant
    return Case(
        load(path, factory),
        split,
        before=None if origin is None else load(origin.path, factory),
        retrain=None if retrain is None else load(retrain.path, factory),
        quant=quant,
        same_bits=retrain is None or Header.read(retrain.model_path).quant == quant,
        declared=None if retrain is None else declared(retrain),
        retrain_seconds=_retrain_seconds(retrain, origin),
        run=run,
        fabric=make_fabric(ComputeConfig(threads=settings.threads)),
        seed=settings.seed,
    )


def _retrain_seconds(retrain: Run | None, origin: Run | None) -> float | None:
    """Retrain's time; training the network before took about as long."""
    if retrain is not None and retrain.info.declared is None:
        return retrain.info.seconds.get("forgetting")
    return None if origin is None else origin.info.seconds.get("training")
