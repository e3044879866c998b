"""The relearning probe: what fine-tuning on retained samples brings back.

Forgetting may be shallow: the samples look unseen until somebody fine-tunes the network on retained
samples, and then return without having been shown again. The probe fine-tunes a copy; unseen
samples are its control.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from qunlearn.data import Loader, Split
from qunlearn.data.draw import spread
from qunlearn.errors import Failure
from qunlearn.methods.constants import (
    CLOSE,
    FEWEST,
    PROBE_LR,
    PROBE_PASSES,
    PROBE_STEPS,
    UNSEEN,
)
from qunlearn.metrics import accuracy, margin
from qunlearn.training.config import OptimizerConfig
from qunlearn.training.inference import predict
from qunlearn.training.loop import optimize
from qunlearn.training.objective import CrossEntropy


@dataclass(frozen=True)
class Relearning:
    """What fine-tuning on retained samples did to the forgotten ones.

    Confidences are means over samples, in the true label, in percent.

    Attributes:
        steps: How many steps of fine-tuning.
        lr: The learning rate that they started from.
        before: The confidence on the forgotten samples before fine-tuning.
        after: The same after it.
        unseen_before: The confidence on unseen samples before fine-tuning.
        unseen_after: The same after it.
        accuracy: The accuracy on the forgotten samples after fine-tuning, in percent.
        chance: By how many points the two changes may differ by chance (95 %).
        target: The target of forgetting, if it had one.
    """

    steps: int
    lr: float
    before: float
    after: float
    unseen_before: float
    unseen_after: float
    accuracy: float
    chance: float
    target: float | None = None

    @property
    def returned(self) -> float:
        """By how many points the forgotten samples rose more than the unseen ones.

        A rise up to the target does not count. The expected confidence is at least 0: one near 0
        cannot fall as far as the unseen samples do.

        >>> Relearning(100, 0.05, 71.0, 80.0, 72.0, 73.0, 81.0, 3.0, target=72.0).returned
        7.0
        """
        expected = max(self.before, self.before if self.target is None else self.target)
        return self.after - max(0.0, expected + self.unseen_after - self.unseen_before)

    @property
    def allowed(self) -> float:
        """The difference up to which forgetting counts as deep."""
        return max(CLOSE, self.chance)

    @property
    def deep(self) -> bool:
        """Whether forgetting withstands fine-tuning."""
        return self.returned <= self.allowed


def relearn(
    model: nn.Module,
    split: Split,
    fabric: Fabric,
    *,
    target: float | None = None,
    batch_size: int = 64,
    seed: int = 0,
) -> Relearning | None:
    """Fine-tune a copy of the model on retained samples; measure whether forgotten ones return.

    Args:
        model: A network that has forgotten; it is not changed.
        split: What was forgotten, and what is retained.
        fabric: The devices.
        target: The target of forgetting: a mean confidence, in percent.
        batch_size: Retained samples in a step.
        seed: Seed of the order and the augmentation.

    Returns:
        None if there are too few unseen samples to compare with, or if fine-tuning diverges.
    """
    labels, unseen = split.data.labels, control_samples(split)
    if len(unseen) < FEWEST:
        return None
    copied = copy.deepcopy(model)
    steps = min(PROBE_STEPS, PROBE_PASSES * -(-len(split.retain) // batch_size))
    parts = (split.forget, unseen)

    def logits() -> list[Tensor]:
        return [predict(copied, split.data, part) for part in parts]

    def confidences(each: list[Tensor]) -> list[Tensor]:
        return [margin(out, labels[part]).sigmoid() for out, part in zip(each, parts, strict=True)]

    before = confidences(logits())
    try:
        fine_tune(
            copied, split, split.retain, fabric, steps=steps, batch_size=batch_size, seed=seed
        )
    except Failure:  # the network that has forgotten is there all the same
        return None
    outputs = logits()
    after = confidences(outputs)
    variance = sum(
        float((late - early).var(correction=0)) / len(late)
        for early, late in zip(before, after, strict=True)
    )
    means = [[100 * float(part.mean()) for part in each] for each in (before, after)]
    return Relearning(
        steps=steps,
        lr=PROBE_LR,
        before=means[0][0],
        after=means[1][0],
        unseen_before=means[0][1],
        unseen_after=means[1][1],
        accuracy=accuracy(outputs[0], labels[split.forget]),
        chance=196 * math.sqrt(variance),
        target=target,
    )


def control_samples(split: Split) -> Tensor:
    """Unseen samples of retained classes, the control of fine-tuning."""
    unseen = split.held_out if len(split.held_out) >= FEWEST else split.test
    labels = split.data.labels
    return spread(unseen[torch.isin(labels[unseen], labels[split.retain])], UNSEEN)


def fine_tune(
    model: nn.Module,
    split: Split,
    index: Tensor,
    fabric: Fabric,
    *,
    steps: int,
    rounds: int = 1,
    batch_size: int = 64,
    seed: int = 0,
    title: str = "relearning probe",
    watch: Callable[[], None] = lambda: None,
) -> None:
    """Fine-tune a model in place, in its own bits, as somebody would who relearns.

    Args:
        model: The network.
        split: Whose data it is trained on.
        index: The samples to train on; one that is listed twice is seen twice as often.
        fabric: The devices.
        steps: Steps in each round; the learning rate follows one cosine over all rounds.
        rounds: How many rounds.
        batch_size: Samples in a step.
        seed: Seed of the order and the augmentation.
        title: Title of the progress bar.
        watch: Called after each round.
    """
    rank, world = fabric.global_rank, fabric.world_size
    loader = Loader(
        split.data, index, batch_size, seed=seed, stream="relearn", rank=rank, world=world
    )

    def watched() -> dict[str, float]:
        watch()
        return {}

    optimize(
        fabric,
        model,
        OptimizerConfig(epochs=rounds, lr=PROBE_LR, batch_size=batch_size, seed=seed),
        lambda wrapped: CrossEntropy(fabric, wrapped, loader, steps=steps),
        title=title,
        values=split.data.images[0].numel(),
        watch=watched,
    )
