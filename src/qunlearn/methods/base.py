"""What a method is: settings, and a function that changes a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import torch
from lightning_fabric import Fabric
from pydantic import Field
from torch import Tensor, nn

from qunlearn.data import Loader, Split
from qunlearn.data.draw import generator, spread
from qunlearn.methods.calibration import Calibration
from qunlearn.methods.relearn import Relearning
from qunlearn.metrics import accuracy
from qunlearn.registry import Registry
from qunlearn.store.history import Epoch
from qunlearn.training.checkpoint import Checkpointer
from qunlearn.training.config import LARGEST_SEED, Config, OptimizerConfig, StepConfig
from qunlearn.training.inference import predict
from qunlearn.training.loop import optimize
from qunlearn.training.objective import CrossEntropy, Objective
from qunlearn.training.stopwatch import Stopwatch

SHOWN = 250
"""How many samples of each part the progress bar's accuracies are measured on."""


@dataclass(frozen=True)
class Range:
    """Where a setting is searched: from `low` to `high`, on a logarithmic scale if `log`."""

    low: float
    high: float
    log: bool = True

    def at(self, share: float) -> float:
        """The value at a share of the way from `low` to `high`."""
        if self.log:
            return float(self.low * (self.high / self.low) ** share)
        return self.low + (self.high - self.low) * share

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}{', log' if self.log else ''}"


class MethodConfig(Config):
    """The settings that all methods share; `search` says which are tuned, and where."""

    search: ClassVar[Mapping[str, Range]] = {}
    seed: int = Field(
        0, ge=0, le=LARGEST_SEED, description="Seed of everything that the method draws."
    )

    def check(self, split: Split) -> None:
        """Raise if the settings cannot be met with these samples, before anything is written."""


class SgdStepConfig(StepConfig, MethodConfig):
    """The settings of methods that train; by default some stay as the network is used to."""

    inherits: ClassVar[frozenset[str]] = frozenset(
        {"batch_size", "momentum", "weight_decay", "augment"}
    )


class SgdConfig(OptimizerConfig, SgdStepConfig):
    """The settings of methods that train for a number of epochs."""


@dataclass(frozen=True)
class Job:
    """What a method works on.

    It may train on `split.retain` and `split.forget` alone: what was forgotten earlier is in
    neither, and the held-out and test parts are for measuring. A method registered with
    `holds_earlier` may also push samples of earlier requests down again.

    Attributes:
        model: The network to change, in place.
        split: What to forget and what to retain.
        fabric: The devices.
        fresh: Builds the network anew from a seed, for methods that start from scratch.
        on_epoch: Gets a row of numbers after each epoch.
        title: What the progress bar says.
        clock: Counts the time that forgetting takes.
        checkpointer: Saves the loop's state, so that a run can be resumed.
    """

    model: nn.Module
    split: Split
    fabric: Fabric
    fresh: Callable[[int], nn.Module] | None = None
    on_epoch: Callable[[Epoch], None] = lambda row: None
    title: str = "forgetting"
    clock: Stopwatch = field(default_factory=Stopwatch)
    checkpointer: Checkpointer | None = None

    def loader(self, index: Tensor, config: StepConfig, stream: str = "") -> Loader:
        """Batches of some samples; loaders of different streams draw independently."""
        return Loader(
            self.split.data,
            index,
            config.batch_size,
            seed=config.seed,
            augment=config.augment,
            stream=stream,
            rank=self.fabric.global_rank,
            world=self.fabric.world_size,
        )

    def measuring(self, index: Tensor, config: StepConfig) -> Loader:
        """Whole shuffled batches of some samples as they are, for each process the same."""
        size = config.batch_size
        return Loader(
            self.split.data, index, size, seed=config.seed, augment=False, stream="measuring"
        )

    def optimize(
        self,
        config: OptimizerConfig,
        objective: Callable[[nn.Module], Objective],
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """Run the one loop on the model; see `training.loop.optimize`.

        The first such loop of a method is saved and resumed; a later one is run again.
        """
        checkpointer = self.checkpointer.claim() if self.checkpointer else None
        optimize(
            self.fabric,
            self.model,
            config,
            objective,
            title=self.title,
            values=self.split.data.images[0].numel(),
            prepare=prepare,
            watch=self.watch,
            on_epoch=self.on_epoch,
            checkpointer=checkpointer,
        )
        if checkpointer:
            self.clock.add(checkpointer.seconds_before)

    def fine_tune(
        self, config: OptimizerConfig, prepare: Callable[[], None] = lambda: None
    ) -> None:
        """Train on the retained samples."""
        loader = self.loader(self.split.retain, config)
        self.optimize(config, lambda model: CrossEntropy(self.fabric, model, loader), prepare)

    def watch(self) -> dict[str, float]:
        """Accuracy on some samples of the forget and the retain part, to see how it goes."""
        parts = {"forget_accuracy": self.split.forget, "retain_accuracy": self.split.retain}
        data = self.split.data
        with self.clock.paused():
            return {
                name: accuracy(predict(self.model, data, some), data.labels[some])
                for name, some in ((name, spread(index, SHOWN)) for name, index in parts.items())
            }


@dataclass(frozen=True)
class Findings:
    """What a method reports about its own run.

    Attributes:
        chosen: Settings that were left open, as the method chose them.
        calibration: The target, and what was reached; of calibrated methods only.
        relearning: What fine-tuning on retained samples brings back; added when the method is done,
            unless it has measured that itself.
    """

    chosen: Mapping[str, object] = field(default_factory=dict)
    calibration: Calibration | None = None
    relearning: Relearning | None = None


C = TypeVar("C", bound=MethodConfig)
F = TypeVar("F", bound=Findings | None)


@dataclass(frozen=True)
class Method:
    """A method as the table of methods has it.

    Attributes:
        name: What it is called on the command line.
        summary: What it does, in one line.
        source: Who published it.
        config: Its settings, with their defaults and search ranges.
        run: Changes `job.model`, and nothing else; returns its findings, if it has any.
        revision: Goes up when the same settings come to give another network; comparisons then make
            their cells anew.
        holds_earlier: Whether it reads samples of earlier requests, to keep them forgotten.
    """

    name: str
    summary: str
    source: str
    config: type[MethodConfig]
    run: Callable[[Job, Any], Findings | None]
    revision: int = 1
    holds_earlier: bool = False


methods: Registry[Method] = Registry("method")


def method(
    name: str, *, config: type[C], source: str, revision: int = 1, holds_earlier: bool = False
) -> Callable[[Callable[[Job, C], F]], Callable[[Job, C], F]]:
    """Register a function `(job, config)` as a method; its docstring's first line describes it."""

    def enter(run: Callable[[Job, C], F]) -> Callable[[Job, C], F]:
        summary = (run.__doc__ or name).strip().splitlines()[0]
        if name in methods and methods[name].run.__module__ == run.__module__:
            methods.drop(name)  # a notebook's cell was run again
        methods.register(name)(Method(name, summary, source, config, run, revision, holds_earlier))
        return run

    return enter


def other_labels(labels: Tensor, classes: int, *key: int | str) -> Tensor:
    """For each label a random other one, all equally likely; the same for the same key.

    >>> other_labels(torch.tensor([0, 1, 1]), 2, "key")
    tensor([1, 0, 0])
    """
    shift = generator(*key).integers(1, classes, size=len(labels))
    return (labels + torch.from_numpy(shift)) % classes
