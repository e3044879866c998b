"""FT: fine-tune on the retained samples alone."""

from __future__ import annotations

from pydantic import Field

from qunlearn.methods.base import Job, Range, SgdConfig, method
from qunlearn.training.config import Epochs, LearningRate


class FtConfig(SgdConfig):
    """FT's settings."""

    epochs: Epochs = Field(10, description="How many times each retained sample is seen.")
    lr: LearningRate = Field(0.01, description="The learning rate that the cosine starts from.")
    search = {"lr": Range(1e-3, 1e-1)}


@method("ft", config=FtConfig, source="Warnecke et al. 2021; Golatkar et al. 2020")
def ft(job: Job, config: FtConfig) -> None:
    """Fine-tune on the retained samples, and let the rest fade."""
    job.fine_tune(config)
