"""SalUn: random labels, but only the weights that matter most for the forget samples may move."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from qunlearn.methods.base import Job, Range, method
from qunlearn.methods.relabel import RelabelConfig, Relabelled, random_lesson
from qunlearn.methods.whole_gradient import trainable, whole_gradient
from qunlearn.training.config import LearningRate


class SalunConfig(RelabelConfig):
    """SalUn's settings."""

    lr: LearningRate = Field(5e-3, description="The learning rate that the cosine starts from.")
    share: float = Field(0.5, gt=0, le=1, description="The share of weights that may move.")
    search = {
        "lr": Range(5e-4, 5e-2),
        "share": Range(0.1, 0.9, log=False),
    }


@method("salun", config=SalunConfig, source="Fan et al. 2024")
def salun(job: Job, config: SalunConfig) -> None:
    """Random labels, with only the weights free that matter most for the forget samples."""
    job.model.to(job.fabric.device)
    # The first process's, lest a last bit make processes free different weights.
    free = job.fabric.broadcast(salient(job, config.share))
    job.optimize(config, lambda model: MaskedRelabelling(job, config, model, free))


class MaskedRelabelling(Relabelled):
    """Random labels; weights outside the mask stay as they are."""

    def __init__(self, job: Job, config: SalunConfig, model: nn.Module, free: list[Tensor]):
        super().__init__(job, config, model, random_lesson(job, config))
        self.parameters, self.free = trainable(job.model), free
        self.original = [p.detach().clone() for p in self.parameters]

    @torch.no_grad()
    def after_step(self) -> None:
        """Restore the masked weights; zero gradients would not do: decay and momentum move them."""
        for parameter, mask, old in zip(self.parameters, self.free, self.original, strict=True):
            parameter.copy_(torch.where(mask, parameter, old))


def salient(job: Job, share: float) -> list[Tensor]:
    """For each trainable parameter a mask: true where |∇CE(D_f)| is among the largest of all."""
    forget = job.split.forget
    gradient = whole_gradient(job.model, job.split.data, forget, torch.ones(len(forget)))
    sizes = torch.cat([g.abs().flatten() for g in gradient])
    mask = torch.zeros(len(sizes), dtype=torch.bool, device=sizes.device)
    # Sorted rather than compared with a threshold: so many exactly, whatever ties there are.
    mask[sizes.argsort(descending=True, stable=True)[: round(share * len(sizes))]] = True
    parts = torch.split(mask, [g.numel() for g in gradient])
    return [part.view_as(g) for part, g in zip(parts, gradient, strict=True)]
