"""Training on wrong labels for what is to be forgotten: what RL, SalUn and Q-MUL share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from qunlearn.methods.base import Job, SgdConfig, other_labels
from qunlearn.training.config import Epochs, LearningRate
from qunlearn.training.objective import CrossEntropy, Objective, Scalars


class RelabelConfig(SgdConfig):
    """The settings of methods that relabel."""

    epochs: Epochs = Field(10, description="How many times each sample is seen.")
    lr: LearningRate = Field(0.01, description="The learning rate that the cosine starts from.")
    order: Literal["forget-first", "mixed"] = Field(
        "forget-first", description="Forget batches, then retain batches; or one shuffled stream."
    )


@dataclass(frozen=True)
class Lesson:
    """What one epoch teaches: the forget samples' labels, and how much each part counts."""

    labels: Tensor
    forget_weight: float = 1.0
    retain_weight: float = 1.0


class Relabelled(Objective):
    """Cross-entropy on both parts; `lesson` is asked before each epoch what the epoch teaches."""

    def __init__(
        self, job: Job, config: RelabelConfig, model: nn.Module, lesson: Callable[[int], Lesson]
    ):
        self.forget, self.retain, self.lesson = job.split.forget, job.split.retain, lesson
        self.labels = job.split.data.labels.clone()
        self.weights = torch.ones(len(self.labels))

        def learn(index: Tensor, stream: str) -> CrossEntropy:
            loader = job.loader(index, config, stream)
            return CrossEntropy(job.fabric, model, loader, labels=self.labels, weights=self.weights)

        if config.order == "mixed":
            self.streams = [learn(torch.cat([self.forget, self.retain]), "")]
        else:
            self.streams = [learn(self.forget, "forget"), learn(self.retain, "")]
        self.steps = sum(stream.steps for stream in self.streams)

    def before_epoch(self, epoch: int) -> None:
        """Ask what the epoch teaches."""
        lesson = self.lesson(epoch)
        self.labels[self.forget] = lesson.labels
        self.weights[self.forget] = lesson.forget_weight
        self.weights[self.retain] = lesson.retain_weight

    def gradients(self, epoch: int, step: int) -> Scalars:
        """A step of the first stream that has any left."""
        for stream in self.streams:
            if step < stream.steps:
                return stream.gradients(epoch, step)
            step -= stream.steps
        raise IndexError(f"an epoch has {self.steps} steps")

    def state(self) -> Mapping[str, Tensor]:
        """What the epoch teaches."""
        return {"labels": self.labels, "weights": self.weights}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Teach that again."""
        if state:
            self.labels.copy_(state["labels"])
            self.weights.copy_(state["weights"])


def random_lesson(job: Job, config: RelabelConfig) -> Callable[[int], Lesson]:
    """Teaches a random wrong label for each forget sample, drawn anew each epoch."""
    true, classes = job.split.data.labels[job.split.forget], job.split.data.num_classes
    return lambda epoch: Lesson(other_labels(true, classes, "random labels", config.seed, epoch))
