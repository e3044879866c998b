"""The one loop. What is learned in a step is an `Objective`; the loop does everything else."""

from __future__ import annotations

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
from qunlearn.quant import Quantizer, fused, rounding_once, using_running_averages
from qunlearn.training.config import OptimizerConfig
from qunlearn.training.devices import check_compiler, compiles
from qunlearn.training.memory import keeping_memory
from qunlearn.training.nonsense import refuse_nonsense, report_collapse
from qunlearn.training.optimizer import learning_rate, make_optimizer
from qunlearn.training.progress import Progress
from qunlearn.training.resume import Keeper, State

Scalars = Mapping[str, Tensor]
"""What a step reports, still on the device: waiting for a number would stall it."""


@dataclass(frozen=True)
class Objective:
    """What to learn: `gradients(epoch, step)` leaves gradients in `.grad` and reports numbers.

    It must depend on nothing but the model, the epoch, the step and what `before_epoch` finds out,
    so that a run can go on from any step. The others are there for methods that need them; what
    `report` returns stands in the epoch's row of the history. An objective that remembers something
    within an epoch gives it as `state`, and gets it back by `restore` when a run goes on.
    """

    steps: int
    gradients: Callable[[int, int], Scalars]
    before_epoch: Callable[[int], None] = lambda epoch: None
    after_step: Callable[[], None] = lambda: None
    report: Callable[[], Mapping[str, Any]] = dict
    state: Callable[[], Mapping[str, Tensor]] = dict
    restore: Callable[[Mapping[str, Tensor]], None] = lambda state: None


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
    keeper: Keeper | None = None,
) -> None:
    """Run the loop: `objective` gets the model as the devices see it, and says what a step learns.

    `values` is how many numbers make one sample; it tells whether compiling would pay. `prepare` is
    called once the model is on its device and in training mode, before anything else.
    After each epoch, `watch` may measure more on the first process, outside of the time that is
    taken, and `on_epoch` gets the row of all numbers. Where `keeper` has kept a state, the loop
    goes on from there, and `on_epoch` gets the rows before it again.
    """
    model.to(fabric.device).train()
    _arrange(model, fastest_layout(model))
    prepare()
    plain = make_optimizer(model, config)
    wrapped, optimizer = fabric.setup(model, plain)
    goal = objective(wrapped)
    work = config.epochs * goal.steps
    kept = keeper.restore(model, plain, fabric) if keeper else None
    few_bits = any(isinstance(module, Quantizer) for module in model.modules())
    read = work * config.batch_size * values
    now = kept or State(compiled=few_bits and compiles(fabric, read))
    if kept:
        check_compiler(kept.compiled)
        goal.restore(kept.own)
    first = fabric.is_global_zero

    def again() -> None:
        optimizer.zero_grad()
        goal.gradients(now.epoch, now.step)

    def keep() -> None:
        if keeper and first:
            keeper.keep(now, model, plain, fabric)

    for row in now.rows if kept else ():
        on_epoch(row)
    with (
        fork_rng(),
        keeping_memory(),
        rounding_once(frozen=True),
        fused(now.compiled),
        Progress(title, work, first) as progress,
    ):
        progress.advance(now.epoch * goal.steps + now.step)
        while now.epoch < config.epochs:
            started = time.perf_counter() - now.seconds
            if now.step == 0:
                goal.before_epoch(now.epoch)
            while now.step < goal.steps:
                rate = learning_rate(config, goal.steps, now.epoch, now.step)
                for group in optimizer.param_groups:
                    group["lr"] = rate
                optimizer.zero_grad()
                _seed(config.seed, now.epoch, now.step, fabric.global_rank)
                scalars = goal.gradients(now.epoch, now.step)
                refuse_nonsense(
                    model,
                    scalars,
                    again,
                    f"epoch {now.epoch + 1}, step {now.step + 1}",
                    scaled=loss_scaler(fabric) is not None,
                )
                optimizer.step()
                goal.after_step()
                for name, value in scalars.items():
                    now.totals[name] = now.totals.get(name, torch.zeros_like(value)) + value
                progress.advance()
                now.step += 1
                # Several processes keep no state within an epoch: each has sums of its own.
                if keeper and fabric.world_size == 1 and now.step < goal.steps and keeper.due():
                    now.seconds, now.own = time.perf_counter() - started, goal.state()
                    keep()
            means = {n: float(_total(fabric, t)) / goal.steps for n, t in now.totals.items()}
            now.seconds = time.perf_counter() - started
            numbers = means | dict(watch() if first else {})
            progress.show(numbers)
            row = {"epoch": now.epoch + 1, "lr": rate, **numbers, "seconds": round(now.seconds, 3)}
            row |= {"compiled": now.compiled} | dict(goal.report()) | report_collapse(model)
            on_epoch(row)
            now.rows.append(row)
            now.epoch, now.step, now.totals, now.own = now.epoch + 1, 0, {}, goal.state()
            if now.epoch == config.epochs or (keeper and keeper.due(epoch_ended=True)):
                keep()
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
    scaler = loss_scaler(fabric)
    return 1.0 if scaler is None else float(scaler.get_scale())


def loss_scaler(fabric: Fabric) -> Any:
    """What scales the loss in 16 bits; None in 32."""
    return getattr(fabric._precision, "scaler", None)


def _total(fabric: Fabric, value: Tensor) -> Tensor:
    total = fabric.all_reduce(value, reduce_op="sum")
    assert isinstance(total, Tensor)
    return total
