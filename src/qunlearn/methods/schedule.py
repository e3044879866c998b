"""How many steps forgetting takes: planned from the size of the request, not of the data set.

Steps of the first phase train on retained samples and push forget samples toward their targets;
steps of the second, the repair, train on retained samples alone. The depth decides whether the
network leaves the basin that it was trained into: by noise on its weights, and by the learning
rate. In the old basin the samples come back as soon as somebody fine-tunes the network
(docs/explain/calibration.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from qunlearn.methods.constants import (
    DEEP_FLOOR,
    DEEP_GROWTH,
    DEEP_LR,
    DEEP_NOISE,
    DEEP_REPAIR,
    DEEP_VISITS,
    FOLLOWS,
    FORGET_BATCH,
    LONGEST_REPAIR,
    PASSES,
    PLAIN,
    ROUND,
    SHALLOW_FLOOR,
    SHALLOW_GROWTH,
    SHALLOW_LR,
    SHALLOW_REPAIR,
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
        noise: The noise on the weights before the first step; see `perturb`.
    """

    depth: Depth
    pushing: int
    pushes: int
    repair: int
    lr: float
    noise: float = 0.0

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

    def follows_at(self, step: int) -> bool:
        """Whether the targets are estimated again before a step: `FOLLOWS` times while pushing.

        Only where weights were perturbed, and not before the first step: BatchNorm's averages do
        not fit the new weights yet.

        >>> schedule = Schedule("deep", pushing=8, pushes=2, repair=9, lr=0.05, noise=0.5)
        >>> [step for step in range(17) if schedule.follows_at(step)]
        [2, 4, 6]
        """
        if not self.noise:
            return False
        every = max(1, -(-self.pushing // (FOLLOWS + 1)))
        return 0 < step < self.pushing and step % every == 0

    def repair_alone(self) -> Schedule:
        """The repair once more, from half the learning rate."""
        return replace(
            self, pushing=0, pushes=0, repair=_whole(self.repair), lr=self.lr / 2, noise=0.0
        )

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


def plan_steps(samples: int, depth: Depth, epoch: int, most: int | None = None) -> Schedule:
    """The schedule for a request.

    Args:
        samples: How many samples are to be pushed.
        depth: Whether forgetting is to withstand fine-tuning.
        epoch: Steps in which each retained sample is seen once; a small data set needs no more than
            `PASSES` of these.
        most: The largest number of steps.

    >>> [plan_steps(samples, "shallow", 700).steps for samples in (10, 450, 4500)]
    [42, 106, 414]
    >>> [plan_steps(samples, "deep", 700).steps for samples in (10, 450, 4500)]
    [568, 612, 1072]
    >>> plan_steps(100, "deep", 15).steps, plan_steps(450, "deep", 700, most=100).steps
    (150, 100)
    """
    batches = math.ceil(samples / FORGET_BATCH)
    if depth == "deep":
        lr, noise = DEEP_LR, DEEP_NOISE
        pushing = DEEP_FLOOR + DEEP_GROWTH * batches
        pushes, repair = DEEP_VISITS * batches, max(DEEP_REPAIR, pushing)
    else:
        lr, noise = SHALLOW_LR, 0.0
        pushing = pushes = SHALLOW_FLOOR + SHALLOW_GROWTH * batches
        repair = min(math.ceil(SHALLOW_REPAIR * pushing), LONGEST_REPAIR)
    planned = pushing + repair
    steps = min(planned, PASSES * epoch, most or planned)
    pushing = min(max(1, pushing * steps // planned), _whole(steps))
    pushes, repair = min(pushing, pushes), _whole(steps) - pushing
    return Schedule(depth, pushing, pushes, repair, lr, noise)


def _rounds(steps: int) -> int:
    # Rounded down: the whole rounds of `_whole` are then as many.
    return max(1, steps // ROUND)


def _whole(steps: int) -> int:
    """The steps without those that are left over when they are divided into equal rounds."""
    return steps - steps % _rounds(steps)
