"""Training on wrong labels for what is to be forgotten: what RL, SalUn and Q-MUL share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from qunlearn.methods.base import Job, SgdConfig, other_labels
from qunlearn.training.loop import Objective, Scalars, cross_entropy


class RelabelConfig(SgdConfig):
    """The settings of methods that relabel."""

    epochs: int = Field(10, ge=1, description="How many times each sample is seen.")
    lr: float = Field(0.01, gt=0, description="The learning rate that the cosine starts from.")
    order: Literal["forget-first", "mixed"] = Field(
        "forget-first", description="Forget batches, then retain batches; or one shuffled stream."
    )


@dataclass(frozen=True)
class Lesson:
    """What one epoch teaches: the forget samples' labels, and how much each part counts."""

    labels: Tensor
    forget_weight: float = 1.0
    retain_weight: float = 1.0


def relabelled(
    job: Job, config: RelabelConfig, model: nn.Module, lesson: Callable[[int], Lesson]
) -> Objective:
    """Cross-entropy on both parts; `lesson` is asked before each epoch what the epoch teaches."""
    forget, retain = job.split.forget, job.split.retain
    labels = job.split.data.labels.clone()
    weights = torch.ones(len(labels))

    def before_epoch(epoch: int) -> None:
        now = lesson(epoch)
        labels[forget] = now.labels
        weights[forget], weights[retain] = now.forget_weight, now.retain_weight

    def learn(index: Tensor, stream: str) -> Objective:
        loader = job.loader(index, config, stream)
        return cross_entropy(job.fabric, model, loader, labels=labels, weights=weights)

    def restore(state: Mapping[str, Tensor]) -> None:
        if state:
            labels.copy_(state["labels"])
            weights.copy_(state["weights"])

    def taught(steps: int, gradients: Callable[[int, int], Scalars]) -> Objective:
        return Objective(
            steps,
            gradients,
            before_epoch,
            state=lambda: {"labels": labels, "weights": weights},
            restore=restore,
        )

    if config.order == "mixed":
        both = learn(torch.cat([forget, retain]), "")
        return taught(both.steps, both.gradients)
    first, then = learn(forget, "forget"), learn(retain, "")

    def gradients(epoch: int, step: int) -> Scalars:
        if step < first.steps:
            return first.gradients(epoch, step)
        return then.gradients(epoch, step - first.steps)

    return taught(first.steps + then.steps, gradients)


def random_lesson(job: Job, config: RelabelConfig) -> Callable[[int], Lesson]:
    """Teaches a random wrong label for each forget sample, drawn anew each epoch."""
    true, classes = job.split.data.labels[job.split.forget], job.split.data.num_classes
    return lambda epoch: Lesson(other_labels(true, classes, "random labels", config.seed, epoch))
