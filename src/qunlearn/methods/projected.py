"""What methods share whose forget gradient is projected before it joins the retain gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import Field
from torch import nn

from qunlearn.gradients import GradientProjector, Granularity, When
from qunlearn.methods.base import SgdConfig
from qunlearn.methods.conflict import ConflictLog
from qunlearn.training.loop import Objective, Scalars

Batches = Sequence[tuple[int, int]]
"""Forget batches, as (epoch, step) of their own loader."""


class ProjectedConfig(SgdConfig):
    """How the forget gradient is kept from disturbing what is retained."""

    alpha: float = Field(
        1.0, ge=0, le=1, description="How much of the conflict is taken out: 0 none, 1 all."
    )
    beta: float = Field(1.0, ge=0, description="The weight of the retain gradient.")
    granularity: Granularity = Field(
        "layer", description="What is projected together: layer, tensor or global."
    )
    when: When = Field(
        "always", description="Project always, or only where the two gradients are in conflict."
    )

    def projector(self, model: nn.Module) -> GradientProjector:
        """What combines the two gradients."""
        return GradientProjector(model, self.alpha, self.beta, self.granularity, self.when)


def orthogonal(
    projector: GradientProjector,
    retaining: Objective,
    batches_of: Callable[[int, int], Batches],
    backward: Callable[[Batches], Scalars],
) -> Objective:
    """Retain, and forget at right angles to it.

    Args:
        projector: Combines the two gradients.
        retaining: What is learned from retained samples.
        batches_of: Which forget batches go with an (epoch, step) of it.
        backward: Leaves the gradient of such batches in `.grad`, and reports numbers.
    """
    log = ConflictLog(retaining.steps)

    def gradients(epoch: int, step: int) -> Scalars:
        batches = batches_of(epoch, step)
        with projector.forget():
            lost = backward(batches)
        with projector.retain():
            kept = retaining.gradients(epoch, step)
        if batches and log.wants(step):
            log.add(step, projector.project_and_measure())
        else:
            projector.project()
        return {"loss": kept["loss"], **lost}

    return Objective(
        retaining.steps,
        gradients,
        report=log.report,
        state=log.state,
        restore=lambda state: log.restore(state, projector.names),
    )


def due(epoch: int, step: int, steps: int, forget_steps: int, rounds: int = 1) -> Batches:
    """Which forget batches, as (epoch, step) of their own loader, go with a retain step.

    Each forget sample has its turn `rounds` times per epoch.

    >>> [due(0, step, 4, 1, rounds=2) for step in range(4)]
    [[], [(0, 0)], [], [(1, 0)]]
    >>> [due(1, step, 2, 4) for step in range(2)]
    [[(1, 0), (1, 1)], [(1, 2), (1, 3)]]
    """
    total = forget_steps * rounds
    numbers = range(step * total // steps, (step + 1) * total // steps)
    return [(epoch * rounds + n // forget_steps, n % forget_steps) for n in numbers]
