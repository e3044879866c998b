"""OEU as published: raise the entropy on the forget samples, as much as the settings say."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from qunlearn.data import Loader
from qunlearn.methods.base import Job, Range, method, other_labels
from qunlearn.methods.losses import negative_entropies
from qunlearn.methods.projected import Batches, ProjectedConfig, due, orthogonal
from qunlearn.quant import keeping_statistics
from qunlearn.training.loop import (
    Objective,
    Scalars,
    cross_entropy,
    fastest_layout,
    normalisation,
    to_device,
)


class OeuPaperConfig(ProjectedConfig):
    """OEU's published settings; the paper's ablations are among them.

    Without GOP: `alpha=0`. Without EGU: `forget_loss="random-label"`. GOP_global:
    `granularity="global"`.
    """

    epochs: int = Field(10, ge=1, description="How many times each retained sample is seen.")
    lr: float = Field(0.03, gt=0, description="The learning rate that the cosine starts from.")
    pairing: Literal["cycle", "once"] = Field(
        "cycle", description="A forget batch at every step, or each forget sample once per epoch."
    )
    forget_loss: Literal["entropy", "random-label"] = Field(
        "entropy", description="Raise the entropy, or teach random wrong labels."
    )
    search = {"lr": Range(1e-2, 1e-1)}


@method("oeu-paper", config=OeuPaperConfig, source="the paper in CITATION.cff")
def oeu_paper(job: Job, config: OeuPaperConfig) -> None:
    """Raise the entropy on the forget samples, at right angles to the retain gradient."""
    job.optimize(config, lambda model: orthogonal_entropy(job, config, model))


def orthogonal_entropy(job: Job, config: OeuPaperConfig, model: nn.Module) -> Objective:
    """What an OEU step learns."""
    forget = job.loader(job.split.forget, config, "forget")
    retaining = cross_entropy(job.fabric, model, job.loader(job.split.retain, config))
    return orthogonal(
        config.projector(job.model),
        retaining,
        lambda epoch, step: paired(config.pairing, epoch, step, retaining.steps, len(forget)),
        ForgetPass(job, config, model, forget).backward,
    )


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


class ForgetPass:
    """The backward pass on forget batches; BatchNorm normalises by them but never records them."""

    def __init__(self, job: Job, config: OeuPaperConfig, model: nn.Module, loader: Loader):
        self.job, self.config, self.model, self.loader = job, config, model, loader
        self.layout = fastest_layout(model)
        self.wrong: tuple[int, Tensor] | None = None

    def backward(self, batches: Batches) -> Scalars:
        """Leave the gradient of the mean loss over these batches in `.grad`."""
        total = torch.zeros((), device=self.job.fabric.device)
        size = sum(self.loader.size(step) for _, step in batches)
        for epoch, step in batches:
            batch = self.loader.batch(epoch, step)
            images, _ = to_device(self.job.fabric, batch, self.layout)
            with keeping_statistics(self.model), normalisation(self.model, self.loader):
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
