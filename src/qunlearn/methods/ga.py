"""GA: gradient ascent on the loss of the forget samples."""

from __future__ import annotations

import torch
from pydantic import Field

from qunlearn.methods.base import Job, Range, SgdConfig, method
from qunlearn.training.config import Epochs, LearningRate
from qunlearn.training.objective import CrossEntropy


class GaConfig(SgdConfig):
    """GA's settings."""

    epochs: Epochs = Field(5, description="How many times each forget sample is seen.")
    lr: LearningRate = Field(1e-4, description="The learning rate that the cosine starts from.")
    search = {"lr": Range(1e-5, 1e-3)}


@method("ga", config=GaConfig, source="Graves et al. 2021; Thudi et al. 2022")
def ga(job: Job, config: GaConfig) -> None:
    """Climb the loss on the forget samples."""
    loader = job.loader(job.split.forget, config)
    upwards = -torch.ones(len(job.split.data))
    job.optimize(config, lambda model: CrossEntropy(job.fabric, model, loader, weights=upwards))
