"""The one loop. What is learned in a step is an `Objective`; the loop does everything else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.random import fork_rng

from qunlearn.data import Batch, Loader
from qunlearn.data.draw import generator
from qunlearn.errors import Failure
from qunlearn.quant import fused, using_running_averages
from qunlearn.training.config import OptimizerConfig
from qunlearn.training.devices import compiles
from qunlearn.training.optimizer import learning_rate, make_optimizer
from qunlearn.training.progress import Progress

Scalars = Mapping[str, Tensor]
"""What a step reports, still on the device: waiting for a number would stall it."""


@dataclass(frozen=True)
class Objective:
    """What to learn: `gradients(epoch, step)` leaves gradients in `.grad` and reports numbers.

    It must depend on nothing but the model, the epoch and the step, so that a run can go on from
    any step. The other three are there for methods that need them; what `report` returns stands in
    the epoch's row of the history.
    """

    steps: int
    gradients: Callable[[int, int], Scalars]
    before_epoch: Callable[[int], None] = lambda epoch: None
    after_step: Callable[[], None] = lambda: None
    report: Callable[[], Mapping[str, Any]] = dict


def cross_entropy(
    fabric: Fabric,
    model: nn.Module,
    loader: Loader,
    *,
    labels: Tensor | None = None,
    weights: Tensor | None = None,
) -> Objective:
    """The usual objective: predict the label.

    Args:
        fabric: The devices.
        model: As the devices see it.
        loader: The batches.
        labels: What to predict instead of the true labels: one for each sample of the data set.
        weights: How much each sample of the data set counts, 1 by default; a negative weight
            climbs the loss.
    """
    layout = fastest_layout(model)

    def gradients(epoch: int, step: int) -> Scalars:
        batch = loader.batch(epoch, step)
        images, true = to_device(fabric, batch, layout)
        wanted = true if labels is None else labels[batch.index].to(true.device)
        # Divided by the global batch, so that processes with unequal shares still average right.
        size = loader.size(step)
        with normalisation(model, loader):
            logits = model(images)
        losses = nn.functional.cross_entropy(logits, wanted, reduction="none")
        objective = losses if weights is None else losses * weights[batch.index].to(losses)
        fabric.backward(objective.sum() / size * fabric.world_size)
        correct = (logits.detach().argmax(1) == true).sum() / size
        return {"loss": losses.detach().sum() / size, "accuracy": 100 * correct}

    return Objective(len(loader), gradients)


FEWEST = 8
"""How many samples it takes before their own mean and variance are worth normalising by."""


def normalisation(model: nn.Module, loader: Loader) -> AbstractContextManager[None]:
    """For parts of a few samples, BatchNorm by its running averages; otherwise as it is.

    A request to forget may name a single sample, which has no variance.
    """
    few = len(loader.index) < FEWEST or loader.smallest_share < 2
    return using_running_averages(model) if few else nullcontext()


def optimize(
    fabric: Fabric,
    model: nn.Module,
    config: OptimizerConfig,
    objective: Callable[[nn.Module], Objective],
    *,
    title: str,
    values: int = 0,
    prepare: Callable[[], None] = lambda: None,
    watch: Callable[[], Mapping[str, float]] = dict,
    on_epoch: Callable[[dict[str, Any]], None] = lambda row: None,
) -> None:
    """Run the loop: `objective` gets the model as the devices see it, and says what a step learns.

    `values` is how many numbers make one sample; it tells whether compiling would pay. `prepare` is
    called once the model is on its device and in training mode, before anything else.
    After each epoch, `watch` may measure more on the first process, outside of the time that is
    taken, and `on_epoch` gets the row of all numbers.
    """
    model.to(fabric.device).train()
    _arrange(model, fastest_layout(model))
    prepare()
    wrapped, optimizer = fabric.setup(model, make_optimizer(model, config))
    goal = objective(wrapped)
    shown = fabric.is_global_zero
    seconds = 0.0
    work = config.epochs * goal.steps
    compiled = compiles(fabric, work * config.batch_size * values)
    with fork_rng(), fused(compiled), Progress(title, work, shown) as progress:
        for epoch in range(config.epochs):
            started = time.perf_counter()
            goal.before_epoch(epoch)
            totals: dict[str, Tensor] = {}
            for step in range(goal.steps):
                rate = learning_rate(config, goal.steps, epoch, step)
                for group in optimizer.param_groups:
                    group["lr"] = rate
                optimizer.zero_grad()
                _seed(config.seed, epoch, step, fabric.global_rank)
                scalars = goal.gradients(epoch, step)
                optimizer.step()
                goal.after_step()
                for name, value in scalars.items():
                    totals[name] = totals.get(name, torch.zeros_like(value)) + value
                progress.advance()
            means = {name: float(_total(fabric, t)) / goal.steps for name, t in totals.items()}
            _refuse_nonsense(means, epoch)
            seconds += time.perf_counter() - started
            numbers = means | dict(watch() if shown else {})
            progress.show(numbers)
            row = {"epoch": epoch + 1, "lr": rate, **numbers, "seconds": round(seconds, 3)}
            on_epoch(row | {"compiled": compiled} | dict(goal.report()))
    # As a loaded model will be, so that both give the same outputs to the last bit.
    _arrange(model, torch.contiguous_format)


def _seed(*key: int) -> None:
    """Dropout, too, comes from seed, epoch and step alone (and differs between processes)."""
    torch.manual_seed(int(generator("step", *key).integers(2**63)))


def fastest_layout(model: nn.Module) -> torch.memory_format:
    """Channels last is faster; but torch corrupts memory with it in very narrow 1×1 convolutions.

    (Seen with torch 2.13 on processors: four channels, stride 2, and the heap is broken.)
    """
    narrow = any(
        isinstance(m, nn.Conv2d) and m.kernel_size == (1, 1) and min(m.weight.shape[:2]) < 8
        for m in model.modules()
    )
    return torch.contiguous_format if narrow else torch.channels_last


def _arrange(model: nn.Module, layout: torch.memory_format) -> None:
    """Lay out the convolutions' weights."""
    for parameter in model.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=layout)


def to_device(fabric: Fabric, batch: Batch, layout: torch.memory_format) -> tuple[Tensor, Tensor]:
    """A batch's images and labels, where the model is and as its weights are laid out."""
    images = batch.images.to(fabric.device, memory_format=layout)
    return images, batch.labels.to(fabric.device)


def loss_scale(fabric: Fabric) -> float:
    """What the loss, and so every gradient, is multiplied by before a step in 16 bits; else 1."""
    scaler = getattr(fabric._precision, "scaler", None)
    return 1.0 if scaler is None else float(scaler.get_scale())


def _total(fabric: Fabric, value: Tensor) -> Tensor:
    total = fabric.all_reduce(value, reduce_op="sum")
    assert isinstance(total, Tensor)
    return total


def _refuse_nonsense(means: Mapping[str, float], epoch: int) -> None:
    for name, value in means.items():
        if not math.isfinite(value):
            raise Failure(
                f"The {name} became {value} in epoch {epoch + 1}; lower the learning rate (lr) or "
                "add warm-up. The history of the epochs before is kept, the model is not."
            )
