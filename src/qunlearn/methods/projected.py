"""What methods share whose forget gradient is projected before it joins the retain gradient."""

from __future__ import annotations

from pydantic import Field
from torch import nn

from qunlearn.gradients import GradientProjector, Granularity, When
from qunlearn.methods.base import SgdConfig


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


def due(
    epoch: int, step: int, steps: int, forget_steps: int, rounds: int = 1
) -> list[tuple[int, int]]:
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
