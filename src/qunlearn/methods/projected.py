"""Shared by methods that project the forget gradient before adding it to the retain gradient."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import Field
from torch import Tensor, nn

from qunlearn.gradients import GradientProjector, Granularity, When
from qunlearn.methods.base import SgdConfig
from qunlearn.methods.conflict import ConflictLog
from qunlearn.store.history import Epoch
from qunlearn.training.objective import Objective, Scalars

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


class Orthogonal(Objective):
    """Retain, and forget at right angles to it.

    Args:
        projector: Combines the two gradients.
        retaining: What is learned from retained samples.
    """

    def __init__(self, projector: GradientProjector, retaining: Objective):
        self.projector, self.retaining = projector, retaining
        self.steps = retaining.steps
        self.log = ConflictLog(self.steps)

    @abstractmethod
    def batches(self, epoch: int, step: int) -> Batches:
        """Which forget batches go with a step on retained samples."""

    @abstractmethod
    def forget(self, batches: Batches) -> Scalars:
        """Leave the gradient of these forget batches in `.grad`, and report numbers."""

    def gradients(self, epoch: int, step: int) -> Scalars:
        """The retain gradient, plus what the projection leaves of the forget gradient."""
        batches = self.batches(epoch, step)
        with self.projector.forget():
            forgetting = self.forget(batches)
        with self.projector.retain():
            retaining = self.retaining.gradients(epoch, step)
        if batches and self.log.wants(step):
            self.log.add(step, self.projector.project_and_measure())
        else:
            self.projector.project()
        return {"loss": retaining["loss"], **forgetting}

    def report(self, row: Epoch) -> Epoch:
        """Add where the two gradients were in conflict."""
        return replace(row, conflict=self.log.report())

    def state(self) -> Mapping[str, Tensor]:
        """The conflicts of the epoch so far."""
        return self.log.state()

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Resume from these conflicts."""
        self.log.restore(state, self.projector.names)


def due(epoch: int, step: int, steps: int, forget_steps: int, passes: int = 1) -> Batches:
    """Which forget batches, as (epoch, step) of their own loader, go with a retain step.

    An epoch makes `passes` passes over the forget set.

    >>> [due(0, step, 4, 1, passes=2) for step in range(4)]
    [[], [(0, 0)], [], [(1, 0)]]
    >>> [due(1, step, 2, 4) for step in range(2)]
    [[(1, 0), (1, 1)], [(1, 2), (1, 3)]]
    """
    total = forget_steps * passes
    numbers = range(step * total // steps, (step + 1) * total // steps)
    return [(epoch * passes + n // forget_steps, n % forget_steps) for n in numbers]
