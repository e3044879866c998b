"""ℓ1-sparse: fine-tune on what is retained while small weights are pulled to zero."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import nn

from qunlearn.methods.base import Job, Range, SgdConfig, method
from qunlearn.methods.whole_gradient import continuous
from qunlearn.training.config import Epochs, LearningRate
from qunlearn.training.loop import loss_scale
from qunlearn.training.objective import CrossEntropy, Scalars


class L1SparseConfig(SgdConfig):
    """ℓ1-sparse's settings."""

    epochs: Epochs = Field(10, description="How many times each retained sample is seen.")
    lr: LearningRate = Field(0.01, description="The learning rate that the cosine starts from.")
    gamma: float = Field(1e-5, ge=0, le=1e38, description="The weight of the ℓ1 norm at the start.")
    search = {"lr": Range(1e-3, 1e-1), "gamma": Range(1e-6, 1e-4)}


def decayed(gamma: float, epochs: int, done: float) -> float:
    """The weight of the norm after `done` epochs, falling linearly to zero at the end.

    >>> [decayed(1.0, 4, done) for done in (0, 1, 2.5, 4)]
    [1.0, 0.75, 0.375, 0.0]
    """
    return gamma * (1 - done / epochs)


@method("l1-sparse", config=L1SparseConfig, source="Jia et al. 2023")
def l1_sparse(job: Job, config: L1SparseConfig) -> None:
    """Fine-tune on the retained samples under a fading ℓ1 penalty."""
    job.optimize(config, lambda model: PenalisedCrossEntropy(job, config, model))


class PenalisedCrossEntropy(CrossEntropy):
    """Cross-entropy on the retained samples plus a fading ℓ1 norm of the weights."""

    def __init__(self, job: Job, config: L1SparseConfig, model: nn.Module):
        super().__init__(job.fabric, model, job.loader(job.split.retain, config))
        self.config = config
        # Without the quantizers' scales, which have nothing to gain from being near zero.
        self.penalised = continuous(job.model)

    def gradients(self, epoch: int, step: int) -> Scalars:
        """The gradient of the loss and of the penalty."""
        scalars = super().gradients(epoch, step)
        gamma = decayed(self.config.gamma, self.config.epochs, epoch + step / self.steps)
        add_penalty(self.penalised, gamma * loss_scale(self.fabric))
        return scalars


@torch.no_grad()
def add_penalty(weights: list[nn.Parameter], gamma: float) -> None:
    """Add the subgradient of `gamma·‖θ‖₁` to the gradients: 0 where a weight is 0."""
    pairs = [(p.data, p.grad) for p in weights if p.grad is not None]
    signs = torch._foreach_sign([weight for weight, _ in pairs])
    torch._foreach_add_([gradient for _, gradient in pairs], signs, alpha=gamma)
