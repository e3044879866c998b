"""The training loop. An `Objective` computes the gradients; the loop does everything else."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.random import fork_rng

from qunlearn.data.draw import generator
from qunlearn.quant import Quantizer, fused, weight_cache
from qunlearn.store.files import as_written
from qunlearn.store.history import Epoch
from qunlearn.training.checkpoint import Checkpointer, State
from qunlearn.training.config import OptimizerConfig
from qunlearn.training.devices import check_compiler, compiles, syncs_batchnorm
from qunlearn.training.memory import keeping_memory
from qunlearn.training.nonfinite import refuse_nonfinite, report_collapse
from qunlearn.training.objective import Objective, fastest_layout
from qunlearn.training.optimizer import learning_rate, make_optimizer, set_rate
from qunlearn.training.progress import Progress
from qunlearn.training.sync_batchnorm import shared_statistics


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
    on_epoch: Callable[[Epoch], None] = lambda row: None,
    checkpointer: Checkpointer | None = None,
) -> None:
    """Train the model in place.

    Args:
        fabric: The devices.
        model: The model; it is moved to the device and left in training mode.
        config: Epochs, learning rate and the like.
        objective: Gets the model as wrapped by Fabric, and returns the `Objective`.
        title: Title of the progress bar.
        values: Number of input values per sample; decides whether compiling pays.
        prepare: Called once, with the model on its device and in training mode.
        watch: Computes further metrics after each epoch, on rank 0 and outside the measured time.
        on_epoch: Gets the row of metrics after each epoch; a resumed run repeats earlier rows.
        checkpointer: Saves the state; the loop resumes from a checkpoint if there is one.
    """
    model.to(fabric.device).train()
    _arrange(model, fastest_layout(model))
    prepare()
    loop = _Loop(fabric, model, config, objective, checkpointer)
    work = config.epochs * loop.objective.steps
    state = loop.resume() or loop.begin(work * config.batch_size * values)
    for row in state.rows:
        on_epoch(row)
    with (
        fork_rng(),
        keeping_memory(),
        weight_cache(frozen=True),
        fused(state.compiled),
        shared_statistics(model, fabric.world_size > 1 and syncs_batchnorm(fabric)),
        Progress(title, work, fabric.is_global_zero) as progress,
    ):
        progress.advance(state.epoch * loop.objective.steps + state.step)
        while state.epoch < config.epochs:
            loop.run_epoch(state, progress)
            on_epoch(loop.end_epoch(state, watch, progress))
            loop.save_between_epochs(state)
    # The layout of a loaded model, so that both give bit-identical outputs.
    _arrange(model, torch.contiguous_format)


class _Loop:
    """What is constant during training; the position of the loop is in `State`."""

    def __init__(
        self,
        fabric: Fabric,
        model: nn.Module,
        config: OptimizerConfig,
        objective: Callable[[nn.Module], Objective],
        checkpointer: Checkpointer | None,
    ):
        self.fabric, self.model, self.config = fabric, model, config
        self.checkpointer = checkpointer
        self.plain = make_optimizer(model, config)
        wrapped, self.optimizer = fabric.setup(model, self.plain)
        self.objective = objective(wrapped)

    def resume(self) -> State | None:
        """Restore model, optimizer and objective from the checkpoint; None if there is none."""
        if self.checkpointer is None:
            return None
        with as_written(self.checkpointer.path):
            state = self.checkpointer.restore(self.model, self.plain, self.fabric)
            if state is not None:
                self.objective.restore(state.objective)
        if state is not None:
            check_compiler(state.compiled)
        return state

    def begin(self, values_read: int) -> State:
        """The state before the first step."""
        low_bit = any(isinstance(module, Quantizer) for module in self.model.modules())
        return State(compiled=low_bit and compiles(self.fabric, values_read))

    def run_epoch(self, state: State, progress: Progress) -> None:
        """Run the remaining steps of an epoch."""
        started = time.perf_counter() - state.seconds
        if state.step == 0:
            self.objective.before_epoch(state.epoch)
        while state.step < self.objective.steps:
            scalars = self.run_step(state)
            for name, value in scalars.items():
                state.totals[name] = state.totals.get(name, torch.zeros_like(value)) + value
            progress.advance()
            state.step += 1
            state.seconds = time.perf_counter() - started
            self.save_within_epoch(state)

    def run_step(self, state: State) -> Mapping[str, Tensor]:
        """Run one optimizer step."""
        set_rate(self.optimizer, self.config, self.objective.steps, state.epoch, state.step)
        _seed(self.config.seed, state.epoch, state.step, self.fabric.global_rank)

        def gradients() -> Mapping[str, Tensor]:
            self.optimizer.zero_grad()
            return self.objective.gradients(state.epoch, state.step)

        scalars = gradients()
        refuse_nonfinite(
            self.model,
            scalars,
            gradients,
            f"epoch {state.epoch + 1}, step {state.step + 1}",
            scaled=loss_scaler(self.fabric) is not None,
        )
        self.optimizer.step()
        self.objective.after_step()
        return scalars

    def end_epoch(
        self, state: State, watch: Callable[[], Mapping[str, float]], progress: Progress
    ) -> Epoch:
        """Return the epoch's row of the history, and advance the state to the next epoch."""
        steps = self.objective.steps
        numbers = {n: float(_total(self.fabric, t)) / steps for n, t in state.totals.items()}
        numbers |= dict(watch() if self.fabric.is_global_zero else {})
        progress.show(numbers)
        earlier = state.rows[-1].elapsed if state.rows else 0.0
        row = Epoch(
            epoch=state.epoch + 1,
            lr=learning_rate(self.config, steps, state.epoch, steps - 1),
            scalars=numbers,
            seconds=round(state.seconds - earlier, 3),
            elapsed=round(state.seconds, 3),
            compiled=state.compiled,
            collapsed=report_collapse(self.model),
        )
        row = self.objective.report(row)
        state.rows.append(row)
        state.epoch, state.step, state.totals = state.epoch + 1, 0, {}
        return row

    def save_within_epoch(self, state: State) -> None:
        """Save the state if it is due; not with several processes, whose totals differ."""
        ended = state.step == self.objective.steps
        if self.checkpointer is None or self.fabric.world_size > 1 or ended:
            return
        if self.checkpointer.due():
            self._save(state)

    def save_between_epochs(self, state: State) -> None:
        """Save the state if it is due, and always after the last epoch."""
        if self.checkpointer is None or not self.fabric.is_global_zero:
            return
        if state.epoch == self.config.epochs or self.checkpointer.due(epoch_ended=True):
            self._save(state)

    def _save(self, state: State) -> None:
        assert self.checkpointer is not None
        state.objective = self.objective.state()
        self.checkpointer.save(state, self.model, self.plain, self.fabric)


def _seed(*key: int) -> None:
    """Seed torch from seed, epoch, step and rank, so that dropout is reproducible too."""
    torch.manual_seed(int(generator("step", *key).integers(2**63)))


def _arrange(model: nn.Module, layout: torch.memory_format) -> None:
    """Set the memory layout of the convolutions' weights."""
    for parameter in model.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=layout)


def loss_scale(fabric: Fabric) -> float:
    """The loss scale of float16 training; 1 in other precisions."""
    scaler = loss_scaler(fabric)
    return 1.0 if scaler is None else float(scaler.get_scale())


def loss_scaler(fabric: Fabric) -> Any:
    """The gradient scaler of float16 training; None in other precisions."""
    return getattr(fabric._precision, "scaler", None)


def _total(fabric: Fabric, value: Tensor) -> Tensor:
    total = fabric.all_reduce(value, reduce_op="sum")
    assert isinstance(total, Tensor)
    return total
