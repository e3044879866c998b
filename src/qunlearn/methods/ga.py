"""GA: climb the loss on what is to be forgotten."""

from __future__ import annotations

import torch
from pydantic import Field

from qunlearn.methods.base import Job, Range, SgdConfig, method
from qunlearn.training.loop import cross_entropy


class GaConfig(SgdConfig):
    """GA's settings."""

    epochs: int = Field(5, ge=1, le=10**6, description="How many times each forget sample is seen.")
    lr: float = Field(
        1e-4, gt=0, le=1e38, description="The learning rate that the cosine starts from."
    )
    search = {"lr": Range(1e-5, 1e-3)}


@method("ga", config=GaConfig, source="Graves et al. 2021; Thudi et al. 2022")
def ga(job: Job, config: GaConfig) -> None:
    """Climb the loss on the forget samples."""
    loader = job.loader(job.split.forget, config)
    upwards = -torch.ones(len(job.split.data))
    job.optimize(config, lambda model: cross_entropy(job.fabric, model, loader, weights=upwards))
