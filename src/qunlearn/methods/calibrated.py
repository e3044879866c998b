"""The default method: lower the confidence in each sample to its target, and no further.

The gradient that does it is projected onto the complement of the retain gradient, as in OEU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from pydantic import AfterValidator, Field
from torch import Tensor, nn

from qunlearn.data import Split
from qunlearn.data.draw import shuffled
from qunlearn.errors import UserError
from qunlearn.methods.base import Findings, Job, method
from qunlearn.methods.calibration import Target, calibration_of, find_target
from qunlearn.methods.constants import (
    BELOW,
    EPOCHS,
    FEWEST,
    LEAST,
    LR,
    ONE_TURN,
    PER_SHARE,
    PUSH,
    PUSHES,
    RECENT,
    SLACK,
    SMALL,
    TURNS,
    WRONG,
)
from qunlearn.methods.projected import Batches, Orthogonal, ProjectedConfig, due
from qunlearn.methods.temperature import expected_entropy, rescale_temperature
from qunlearn.metrics import margin
from qunlearn.store.files import Row
from qunlearn.training.config import Epochs, LearningRate
from qunlearn.training.inference import predict
from qunlearn.training.objective import CrossEntropy, Scalars, fastest_layout, to_device

PUSHED, ABOVE, RECENTLY = "pushed", "above", "recently"


def _part_or_share(named: str) -> str:
    if not re.fullmatch(r"(held_out|test)(:0?\.\d+)?", named):
        raise ValueError("choose held_out, test, or a share of either below 1, as test:0.2")
    return named


class CalibratedConfig(ProjectedConfig):
    """The settings of the calibrated method; none of them needs to be chosen."""

    # The strength of the push depends on the batch size, and is tuned for this one.
    inherits: ClassVar[frozenset[str]] = ProjectedConfig.inherits - {"batch_size"}
    batch_size: int = Field(
        64,
        ge=1,
        description="Retained samples in a step; a forget batch has half as many forget samples "
        "beside as many retained ones.",
    )
    epochs: Epochs | None = Field(  # type: ignore[assignment]
        None,
        description="How many times each retained sample is seen; 5, and more for a large request.",
    )
    lr: LearningRate | None = Field(  # type: ignore[assignment]
        None,
        description="The learning rate that the cosine starts from; 0.01, and less for a small "
        "request.",
    )
    unseen: Annotated[str, AfterValidator(_part_or_share)] = Field(
        "held_out",
        description="Which samples show what unseen data looks like: held_out, test, or a share of "
        "either, as test:0.2.",
    )

    def check(self, split: Split) -> None:
        """Raise if there are no such samples."""
        never_seen(split, self.unseen)


@method(
    "calibrated",
    config=CalibratedConfig,
    source="the paper in CITATION.cff, calibrated by qunlearn",
    revision=4,
)
def calibrated(job: Job, config: CalibratedConfig) -> Findings:
    """Lower the confidence in each sample to its target, estimated from held-out samples."""
    usual = {"epochs": epochs_for(job.split), "lr": rate_for(job.split)}
    chosen = {name: value for name, value in usual.items() if getattr(config, name) is None}
    config = CalibratedConfig.parse(dict(config) | chosen)
    unseen = never_seen(job.split, config.unseen)
    job.model.to(job.fabric.device)
    target = find_target(job.model, job.split, unseen, config.seed)
    expected = expected_entropy(job.model, job.split, unseen)
    course: list[float] = []

    def keep(row: Row) -> None:
        course.append(row[ABOVE])
        job.on_epoch(row)

    kept = replace(job, on_epoch=keep)
    kept.optimize(config, lambda model: Push(job, config, model, target))
    factor = rescale_temperature(job.model, job.split, unseen, expected)
    forget, data = job.split.forget, job.split.data
    now = margin(predict(job.model, data, forget), data.labels[forget])
    found = replace(
        calibration_of(target, job.split, now, course, factor),
        lr=config.lr,
        lowered=tuple(name for name, value in usual.items() if getattr(config, name) < value),
        raised=tuple(name for name, value in usual.items() if getattr(config, name) > value),
    )
    return Findings(chosen, found)


def never_seen(split: Split, named: str) -> Tensor:
    """The samples that show what unseen data looks like.

    Samples of fully forgotten classes, now or before, are excluded.
    """
    rows = _unseen(split, named)
    if len(rows) >= FEWEST:
        return rows
    ways = ("held_out", "test:0.2", "test")
    better = [f"--set unseen={way}" for way in ways if len(_unseen(split, way)) >= FEWEST]
    raise UserError(
        f"Method 'calibrated' needs at least {FEWEST} unseen samples, and {named!r} has "
        f"{len(rows)} of retained classes; use "
        f"{' or '.join([*better[:1], '--method oeu'])}, or a run that has more."
    )


def _unseen(split: Split, named: str) -> Tensor:
    """The samples that are named and whose class is still retained."""
    name, _, share = named.partition(":")
    rows = {"held_out": split.held_out, "test": split.test}[name]
    if share:
        chosen = shuffled([split.data.ids[row] for row in rows.tolist()], "unseen")
        rows = rows[sorted(chosen[: round(float(share) * len(rows))])]
    labels = split.data.labels
    return rows[torch.isin(labels[rows], labels[split.retain])]


def epochs_for(split: Split) -> int:
    """The number of epochs; a larger request needs more for the retained samples to recover.

    >>> import qunlearn as qu
    >>> digits = qu.load_dataset("digits", subset=100)
    >>> [epochs_for(qu.Split.random(digits, fraction=share)) for share in (0.1, 0.3, 0.5)]
    [5, 9, 15]
    """
    return max(EPOCHS, round(PER_SHARE * _share(split)))


def rate_for(split: Split) -> float:
    """The learning rate; a smaller request takes smaller steps.

    >>> import qunlearn as qu
    >>> digits = qu.load_dataset("digits", subset=500)
    >>> splits = [qu.Split.random(digits, fraction=share) for share in (0.5, 0.1, 0.05, 0.01)]
    >>> [round(rate_for(split), 3) for split in splits]
    [0.01, 0.01, 0.005, 0.003]
    """
    return round(LR * min(max(_share(split) / SMALL, LEAST), 1), 4)


def _share(split: Split) -> float:
    return len(split.forget) / (len(split.forget) + len(split.retain))


def passes_per_epoch(forget_steps: int, epochs: int, lr: float, distance: float) -> int:
    """The number of passes over the forget set in an epoch.

    Args:
        forget_steps: How many forget batches there are.
        epochs: How many epochs.
        lr: The learning rate.
        distance: The mean distance of the samples above their targets, as a probability.

    >>> [passes_per_epoch(steps, 5, 0.01, 0.3) for steps in (14, 7, 1)]
    [1, 2, 3]
    >>> passes_per_epoch(14, 5, 0.01, 0.7), passes_per_epoch(1, 5, 0.003, 0.3)
    (2, 10)
    """
    few = min(round(PUSHES / epochs / forget_steps), int(TURNS * (LR / lr) / epochs))
    return max(1, few, round(distance / ONE_TURN))


def urgency(odds: Tensor, target: Tensor) -> Tensor:
    """The weight of each sample's push: 0 at its target and below, 1 far above.

    The distance is one of probabilities. Confidences of 1 % and 0.001 % are close as probabilities,
    but not to an attack that reads log-odds: where the target is a wrong prediction, the distance
    in log-odds counts too. (In class-wise forgetting there are no target log-odds.)

    Args:
        odds: The log-odds of the true label, by sample.
        target: Their targets.

    >>> urgency(torch.tensor([2.0, 2.0, -4.6]), torch.tensor([1.0, 3.0, -11.5]))
    tensor([0.7487, 0.0000, 0.8625])
    """
    distance = (odds.sigmoid() - target.sigmoid()) / SLACK
    wrong = (target < 0) & target.isfinite()
    by_odds = torch.maximum(distance, (odds - target) / WRONG)
    return torch.where(wrong, by_odds, distance).clamp(0, 1)


class Push(Orthogonal):
    """What a step learns: retain, and lower the log-odds of forget batches to their targets.

    A sample is pushed in proportion to its distance above its target. Samples below target are not
    raised. To limit overshoot, all pushes fade as the mean falls below the targets.

    Forget samples are not augmented, since their targets are not. BatchNorm uses batch statistics
    here and records none. Two thirds of the batch are augmented retained samples, so that these
    statistics match the running statistics that evaluation uses.
    """

    def __init__(self, job: Job, config: CalibratedConfig, model: nn.Module, target: Target):
        retaining = CrossEntropy(job.fabric, model, job.loader(job.split.retain, config))
        super().__init__(config.projector(job.model), retaining)
        self.job, self.config, self.model, self.target = job, config, model, target
        half = {"batch_size": -(-config.batch_size // 2), "augment": False}
        self.loader = job.loader(job.split.forget, config.model_copy(update=half), "forget")
        self.others = job.loader(job.split.retain, config, "others")
        # Passes per epoch are those of the default schedule, so that more epochs add passes.
        epochs = min(config.epochs or EPOCHS, epochs_for(job.split))
        distance = target.distance(job.split.forget)
        self.passes = passes_per_epoch(len(self.loader), epochs, config.lr or LR, distance)
        self.layout = fastest_layout(job.model)
        self.epoch: list[Tensor] = []
        self.recently = torch.empty(0)
        self.recent = min(RECENT, len(job.split.forget))

    def batches(self, epoch: int, step: int) -> Batches:
        """Which forget batches go with a step on retained samples."""
        return due(epoch, step, self.steps, len(self.loader), self.passes)

    def forget(self, batches: Batches) -> Scalars:
        """Leave the gradient of these batches in `.grad`."""
        for epoch, step in batches:
            batch = self.loader.batch(epoch, step)
            others = self.others.batch(*divmod(epoch * len(self.loader) + step, len(self.others)))
            images, labels = to_device(self.job.fabric, batch, self.layout)
            among, _ = to_device(self.job.fabric, others, self.layout)
            logits = self.model(torch.cat([images, among]))[: len(labels)]
            odds = margin(logits.float(), labels)
            target = self.target.margins[batch.index].to(odds)
            above = odds.detach().sigmoid() - target.sigmoid()
            self.recently = torch.cat([self.recently, above.cpu()])[-self.recent :]
            weights = urgency(odds.detach(), target) * (1 + self.recently.mean() / BELOW).clamp(
                0, 1
            )
            # By the batch size, not the actual count: a partial batch has the same push per sample.
            # Processes average their gradients, which the world size undoes.
            size = self.config.batch_size / self.job.fabric.world_size
            self.job.fabric.backward(PUSH * (weights * odds).sum() / size)
            self.epoch.append(torch.stack([weights, above]).cpu())
        return {}

    def state(self) -> Mapping[str, Tensor]:
        """Each sample's push and distance above its target in the epoch; the recent distances."""
        epoch = torch.cat(self.epoch, 1) if self.epoch else torch.empty(2, 0)
        pushes = {PUSHED: epoch[0], ABOVE: epoch[1], RECENTLY: self.recently}
        return {**pushes, **super().state()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Resume from there."""
        self.epoch = [torch.stack([state[PUSHED], state[ABOVE]]).cpu()]
        self.recently = state[RECENTLY].cpu()
        own = (PUSHED, ABOVE, RECENTLY)
        super().restore({name: t for name, t in state.items() if name not in own})

    def report(self) -> Row:
        """The epoch's means: the weight of the push, and the points above the targets."""
        pushed, above = torch.cat(self.epoch, 1).mean(1).tolist()
        self.epoch = []
        if self.job.fabric.world_size > 1:
            self.recently = torch.empty(0)  # each process has its own, and only one is saved
        return {PUSHED: round(pushed, 4), ABOVE: round(100 * above, 2), **super().report()}
