"""OEU as published: maximise the entropy on forget samples, by layer-wise projected gradients."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from qunlearn.methods.base import Job, Range, method, other_labels
from qunlearn.methods.losses import negative_entropies
from qunlearn.methods.projected import Batches, Orthogonal, ProjectedConfig, due
from qunlearn.training.config import Epochs, LearningRate
from qunlearn.training.objective import (
    CrossEntropy,
    Scalars,
    fastest_layout,
    normalisation,
    to_device,
)


class OeuConfig(ProjectedConfig):
    """OEU's published settings; the paper's ablations are among them.

    Without GOP: `alpha=0`. Without EGU: `forget_loss="random-label"`. GOP_global:
    `granularity="global"`.
    """

    epochs: Epochs = Field(10, description="How many times each retained sample is seen.")
    lr: LearningRate = Field(0.03, description="The learning rate that the cosine starts from.")
    pairing: Literal["cycle", "once"] = Field(
        "cycle", description="A forget batch at every step, or each forget sample once per epoch."
    )
    forget_loss: Literal["entropy", "random-label"] = Field(
        "entropy", description="Raise the entropy, or teach random wrong labels."
    )
    search = {"lr": Range(1e-2, 1e-1)}


# Revisions up to 4 of the name "oeu" are those of what is called "calibrated" now.
@method("oeu", config=OeuConfig, source="the paper in CITATION.cff", revision=5)
def oeu(job: Job, config: OeuConfig) -> None:
    """Raise the entropy on the forget samples, at right angles to the retain gradient."""
    job.optimize(config, lambda model: OrthogonalEntropy(job, config, model))


def paired(pairing: str, epoch: int, step: int, steps: int, forget_steps: int) -> Batches:
    """Which forget batches, as (epoch, step) of their own loader, go with a retain step.

    >>> [paired("cycle", 0, step, 4, 3) for step in range(4)]
    [[(0, 0)], [(0, 1)], [(0, 2)], [(1, 0)]]
    >>> [paired("once", 0, step, 4, 2) for step in range(4)]
    [[], [(0, 0)], [], [(0, 1)]]
    """
    if pairing == "cycle":
        return [divmod(epoch * steps + step, forget_steps)]
    return due(epoch, step, steps, forget_steps)


class OrthogonalEntropy(Orthogonal):
    """What an OEU step learns; BatchNorm normalises by forget batches but never records them."""

    def __init__(self, job: Job, config: OeuConfig, model: nn.Module):
        retaining = CrossEntropy(job.fabric, model, job.loader(job.split.retain, config))
        super().__init__(config.projector(job.model), retaining)
        self.job, self.config, self.model = job, config, model
        self.loader = job.loader(job.split.forget, config, "forget")
        self.layout = fastest_layout(model)
        self.wrong: tuple[int, Tensor] | None = None

    def batches(self, epoch: int, step: int) -> Batches:
        """Which forget batches go with a step on retained samples."""
        return paired(self.config.pairing, epoch, step, self.steps, len(self.loader))

    def forget(self, batches: Batches) -> Scalars:
        """Leave the gradient of the mean loss over these batches in `.grad`."""
        total = torch.zeros((), device=self.job.fabric.device)
        size = sum(self.loader.size(step) for _, step in batches)
        for epoch, step in batches:
            batch = self.loader.batch(epoch, step)
            images, _ = to_device(self.job.fabric, batch, self.layout)
            with normalisation(self.model, self.loader):
                logits = self.model(images)
            # Divided by the global batch; processes average, so the world's size is put back.
            loss = self.losses(logits, epoch, batch.index).sum() / size
            self.job.fabric.backward(loss * self.job.fabric.world_size)
            total += loss.detach()
        return {"forget_loss": total}

    def losses(self, logits: Tensor, epoch: int, index: Tensor) -> Tensor:
        """Each sample's loss."""
        if self.config.forget_loss == "entropy":
            return negative_entropies(logits)
        labels = self.wrong_labels(epoch)[index].to(logits.device)
        return nn.functional.cross_entropy(logits, labels, reduction="none")

    def wrong_labels(self, epoch: int) -> Tensor:
        """A random wrong label for each sample of the data set, drawn anew each epoch."""
        if self.wrong is None or self.wrong[0] != epoch:
            data, key = self.job.split.data, ("random labels", self.config.seed, epoch)
            self.wrong = epoch, other_labels(data.labels, data.num_classes, *key)
        return self.wrong[1]
