"""RL: teach random wrong labels for what is to be forgotten, true ones for the rest."""

from __future__ import annotations

from qunlearn.methods.base import Job, Range, method
from qunlearn.methods.relabel import RelabelConfig, Relabelled, random_lesson


class RlConfig(RelabelConfig):
    """RL's settings."""

    search = {"lr": Range(1e-3, 1e-1)}


@method("rl", config=RlConfig, source="Golatkar et al. 2020")
def rl(job: Job, config: RlConfig) -> None:
    """Teach random wrong labels on the forget samples, true ones on the rest."""
    lesson = random_lesson(job, config)
    job.optimize(config, lambda model: Relabelled(job, config, model, lesson))
