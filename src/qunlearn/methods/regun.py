"""ReGUn: distil forget samples toward the original's predictions on unseen samples of their class.

After Reference-Guided Machine Unlearning (arXiv 2603.11210), the published method nearest to
`calibrated`. The paper averages the reference over a forget batch, with held-out samples drawn to
match its classes; here each forget sample has the average for its own class.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from qunlearn.data import Split
from qunlearn.data.draw import generator
from qunlearn.errors import UserError
from qunlearn.methods.base import Job, Range, SgdConfig, method
from qunlearn.methods.projected import due
from qunlearn.quant import preserve_running_stats
from qunlearn.training.config import Epochs, LearningRate
from qunlearn.training.inference import predict
from qunlearn.training.objective import (
    CrossEntropy,
    Objective,
    Scalars,
    fastest_layout,
    normalisation,
    to_device,
)


class RegunConfig(SgdConfig):
    """ReGUn's settings."""

    epochs: Epochs = Field(10, description="How many times each retained sample is seen.")
    lr: LearningRate = Field(0.01, description="The learning rate that the cosine starts from.")
    weight: float = Field(1.0, ge=0, description="The weight of the forget samples' loss.")
    references: int = Field(
        8, ge=1, description="Held-out samples of its class that a forget sample's target averages."
    )
    search = {"lr": Range(1e-3, 1e-1), "weight": Range(0.1, 10)}

    def check(self, split: Split) -> None:
        """Raise if there are no held-out samples of retained classes."""
        if not len(_held_out(split)):
            raise UserError(
                "Method 'regun' needs held-out samples of retained classes, and there are none; "
                "use a run that has some, or another method."
            )


@method("regun", config=RegunConfig, source="Mirlach, Vogt and Laguna 2026, arXiv 2603.11210")
def regun(job: Job, config: RegunConfig) -> None:
    """Distil forget samples toward the original's predictions on unseen samples of their class."""
    rows = _held_out(job.split)
    job.model.to(job.fabric.device)
    outputs = predict(job.model, job.split.data, rows).softmax(1)
    job.optimize(config, lambda model: Distil(job, config, model, rows, outputs))


def _held_out(split: Split) -> Tensor:
    """The held-out samples whose class is still retained."""
    labels = split.data.labels
    return split.held_out[torch.isin(labels[split.held_out], labels[split.retain])]


class Distil(Objective):
    """Cross-entropy on retained samples; KL divergence from the references on forget samples.

    A class without held-out samples has references of all classes.
    """

    def __init__(
        self, job: Job, config: RegunConfig, model: nn.Module, held_out: Tensor, outputs: Tensor
    ):
        self.job, self.config, self.model = job, config, model
        self.retaining = CrossEntropy(job.fabric, model, job.loader(job.split.retain, config))
        self.steps = self.retaining.steps
        self.loader = job.loader(job.split.forget, config, "forget")
        self.labels, self.outputs = job.split.data.labels[held_out], outputs
        self.layout = fastest_layout(job.model)

    def references(self, labels: Tensor, *key: int) -> Tensor:
        """For each label the mean prediction on some held-out samples of the class."""
        draw = generator("references", self.config.seed, *key)
        means = []
        for label in labels.tolist():
            rows = (self.labels == label).nonzero().flatten()
            rows = rows if len(rows) else torch.arange(len(self.labels))
            chosen = draw.integers(len(rows), size=self.config.references)
            means.append(self.outputs[rows[torch.from_numpy(chosen)]].mean(0))
        return torch.stack(means)

    def gradients(self, epoch: int, step: int) -> Scalars:
        """The gradient of both losses; each forget sample is seen once per epoch."""
        fabric, total = self.job.fabric, torch.zeros((), device=self.job.fabric.device)
        for at in due(epoch, step, self.steps, len(self.loader)):
            batch = self.loader.batch(*at)
            images, labels = to_device(fabric, batch, self.layout)
            with preserve_running_stats(self.job.model), normalisation(self.model, self.loader):
                log_p = self.model(images).float().log_softmax(1)
            target = self.references(labels.cpu(), *at, fabric.global_rank).to(log_p)
            size = self.loader.size(at[1])
            loss = nn.functional.kl_div(log_p, target, reduction="sum") / size
            fabric.backward(self.config.weight * loss * fabric.world_size)
            total += loss.detach()
        return {**self.retaining.gradients(epoch, step), "forget_loss": total}
