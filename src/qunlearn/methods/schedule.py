"""How many steps forgetting takes: planned from the size of the request, not of the data set.

Forgetting has two phases. Steps of the first train on retained samples and push forget samples
toward their targets; steps of the second, the repair, train on retained samples alone. The depth
decides how high the learning rate is meanwhile. At a low one the network stays in the basin that it
was trained into, and the samples come back as soon as somebody fine-tunes it (docs/calibration.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from qunlearn.methods.constants import (
    DEEP_LR,
    DEEP_PUSHING,
    DEEP_REPAIR,
    DEEP_VISITS,
    FEWEST_VISITS,
    FORGET_BATCH,
    PLAIN,
    ROUND,
    SHALLOW_LR,
    SHALLOW_PUSHING,
    SHALLOW_REPAIR,
    SHALLOW_VISITS,
)

Depth = Literal["deep", "shallow"]


@dataclass(frozen=True)
class Schedule:
    """The steps of forgetting.

    Attributes:
        depth: Whether forgetting is to withstand fine-tuning.
        pushing: Steps of the first phase.
        pushes: How many of them push a forget batch.
        repair: Steps of the second phase.
        lr: The learning rate that the cosine over all steps starts from.
    """

    depth: Depth
    pushing: int
    pushes: int
    repair: int
    lr: float

    @property
    def steps(self) -> int:
        """All steps."""
        return self.pushing + self.repair

    @property
    def rounds(self) -> int:
        """How many rounds of equal length they are divided into; each has a row in the history."""
        return _rounds(self.steps)

    @property
    def plain_from(self) -> int:
        """From which step on retained samples are not augmented, so that they are learned exactly.

        A repair under augmentation alone leaves their accuracy a point or more below Retrain's.
        """
        return self.steps - round(PLAIN * self.repair)

    def repair_alone(self) -> Schedule:
        """The repair once more, from half the learning rate."""
        return replace(self, pushing=0, pushes=0, repair=_whole(self.repair), lr=self.lr / 2)

    def push_at(self, step: int) -> int | None:
        """The number of the forget batch that a step pushes; None if it pushes none.

        >>> schedule = Schedule("shallow", pushing=4, pushes=2, repair=1, lr=0.01)
        >>> [schedule.push_at(step) for step in range(5)]
        [None, 0, None, 1, None]
        """
        if step >= self.pushing:
            return None
        number = (step + 1) * self.pushes // self.pushing
        return number - 1 if number > step * self.pushes // self.pushing else None


def plan_steps(samples: int, depth: Depth, most: int | None = None) -> Schedule:
    """The schedule for a request.

    Args:
        samples: How many samples are to be pushed.
        depth: Whether forgetting is to withstand fine-tuning.
        most: The largest number of steps.

    >>> plan_steps(10, "deep").steps == plan_steps(400, "deep").steps
    True
    >>> plan_steps(10_000, "deep").steps > plan_steps(1000, "deep").steps
    True
    >>> plan_steps(400, "deep", most=100).steps
    100
    """
    lr, visits, pushing, repair = {
        "deep": (DEEP_LR, DEEP_VISITS, DEEP_PUSHING, DEEP_REPAIR),
        "shallow": (SHALLOW_LR, SHALLOW_VISITS, SHALLOW_PUSHING, SHALLOW_REPAIR),
    }[depth]
    batches = math.ceil(samples / FORGET_BATCH)
    # At most one forget batch a step: a large request takes a longer phase, with fewer visits.
    longer = max(1.0, FEWEST_VISITS * batches / pushing)
    pushing, repair = math.ceil(pushing * longer), math.ceil(repair * longer)
    steps = pushing + repair
    if most is not None and steps > most:
        pushing, steps = max(1, pushing * most // steps), most
    pushes = min(pushing, visits * batches)
    return Schedule(depth, pushing, pushes, _whole(steps) - pushing, lr)


def _rounds(steps: int) -> int:
    # Rounded down: the whole rounds of `_whole` are then as many.
    return max(1, steps // ROUND)


def _whole(steps: int) -> int:
    """The steps without those that are left over when they are divided into equal rounds."""
    return steps - steps % _rounds(steps)
