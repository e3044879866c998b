"""Retrain: train from scratch on the retained samples. The gold standard, and the slowest."""

from __future__ import annotations

from pydantic import Field

from qunlearn.errors import UserError
from qunlearn.methods.base import Job, SgdConfig, method
from qunlearn.training.config import Epochs
from qunlearn.training.train import calibrate_first


class RetrainConfig(SgdConfig):
    """Retrain's settings."""

    epochs: Epochs = Field(160, description="How many times each retained sample is seen.")


@method("retrain", config=RetrainConfig, source="exact unlearning, the gold standard")
def retrain(job: Job, config: RetrainConfig) -> None:
    """Train a fresh network on the retained samples alone."""
    if job.fresh is None:
        raise UserError(
            "Retrain must build the network anew and was not told how; pass fresh=, a function of "
            "a seed that returns an untrained network."
        )
    fresh = job.fresh(config.seed).state_dict()
    if fresh.keys() != job.model.state_dict().keys():
        strange = sorted(fresh.keys() ^ job.model.state_dict().keys())[0]
        raise UserError(
            f"What fresh= builds is another network than the one that is to forget: {strange!r} is "
            "in one of them only; build and quantize it as the other was."
        )
    job.model.load_state_dict(fresh)
    job.fine_tune(
        config, lambda: calibrate_first(job.model, job.split.data, job.split.retain, config)
    )
