"""The default method: lower the confidence on each forget sample to its target, then repair."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from pydantic import AfterValidator, Field
from torch import Tensor, nn

from qunlearn.data import Split
from qunlearn.data.draw import shuffled, spread
from qunlearn.errors import UserError
from qunlearn.methods.base import Findings, Job, SgdStepConfig, method
from qunlearn.methods.calibration import Calibration, Extension, TargetEstimator, calibration_of
from qunlearn.methods.constants import EARLIER, FEWEST, MEMORISED, RECOVERED, WATCHED
from qunlearn.methods.push import Push, perturb
from qunlearn.methods.relearn import relearn
from qunlearn.methods.schedule import Depth, Schedule, plan_steps
from qunlearn.methods.temperature import rescale_temperature
from qunlearn.metrics import accuracy, margin
from qunlearn.store.history import Epoch
from qunlearn.training.config import Epochs, LearningRate, OptimizerConfig, StepConfig
from qunlearn.training.inference import predict


def _part_or_fraction(value: str) -> str:
    if not re.fullmatch(r"(held_out|test)(:0?\.\d+)?", value):
        raise ValueError("choose held_out, test, or a fraction of either, such as test:0.2")
    return value


class CalibratedConfig(SgdStepConfig):
    """The settings of the calibrated method; the defaults suit any request."""

    # batch_size is not inherited from training: PUSH was tuned at 64.
    inherits: ClassVar[frozenset[str]] = SgdStepConfig.inherits - {"batch_size"}
    depth: Depth | None = Field(
        None,
        description="deep: forgetting withstands later fine-tuning. shallow: fewer steps, but "
        "fine-tuning can bring samples back. By default deep if the network has memorised the "
        "samples; else shallow first, then deep if fine-tuning brings them back.",
    )
    steps: int | None = Field(
        None,
        ge=1,
        description="Maximum number of steps. Default: no limit to what the request needs.",
    )
    epochs: Epochs | None = Field(
        None, description="Maximum number of passes over the retained samples."
    )
    batch_size: int = Field(
        64, ge=1, description="Retained samples in a step; up to 32 forget samples join them."
    )
    lr: LearningRate | None = Field(  # type: ignore[assignment]
        None,
        description="Initial learning rate of the cosine schedule; the depth sets the default.",
    )
    unseen: Annotated[str, AfterValidator(_part_or_fraction)] = Field(
        "held_out",
        description="The samples that the target is estimated from: held_out, test, or a fraction "
        "of either, such as test:0.2. The network must not have been trained on them.",
    )

    def check(self, split: Split) -> None:
        """Raise if there are too few unseen samples."""
        unseen_samples(split, self.unseen)

    def max_steps(self, retained: int) -> int | None:
        """The maximum number of steps; None if there is none."""
        epoch = -(-retained // self.batch_size)
        limits = (self.steps, None if self.epochs is None else self.epochs * epoch)
        return min((limit for limit in limits if limit is not None), default=None)

    def schedule(self, samples: int, retained: int, *, limited: bool = True) -> Schedule:
        """The steps for so many forget samples; with `limited`, at most `max_steps`."""
        most = self.max_steps(retained) if limited else None
        depth, epoch = self.depth or "deep", -(-retained // self.batch_size)
        schedule = plan_steps(samples, depth, epoch, most)
        return schedule if self.lr is None else replace(schedule, lr=self.lr)


@method(
    "calibrated",
    config=CalibratedConfig,
    source="qunlearn; similar to ReGUn (arXiv 2603.11210)",
    revision=8,
    holds_earlier=True,
)
def calibrated(job: Job, config: CalibratedConfig) -> Findings:
    """Lower the confidence on each forget sample to its target, estimated from held-out samples."""
    forgetting, relearning = _Forgetting(job, config), None
    depth = config.depth or forgetting.depth_needed
    calibration = forgetting.forget(depth)
    if depth == "shallow" and config.depth is None and not forgetting.limited:
        target, seed = calibration.target, config.seed
        relearning = relearn(job.model, job.split, job.fabric, target=target, seed=seed)
        if relearning is not None and not relearning.deep:
            forgetting.extensions.append("depth")
            calibration, relearning = forgetting.forget("deep"), None
    chosen = {"steps": calibration.steps, "lr": calibration.lr}
    return Findings(chosen, calibration, relearning)


class _Forgetting:
    """One request: the samples that are pushed, their targets, and the steps taken so far."""

    def __init__(self, job: Job, config: CalibratedConfig):
        self.job, self.config, self.split = job, config, job.split
        job.model.to(job.fabric.device)
        self.pushed = torch.cat([job.split.forget, earlier_samples(job.split)])
        self.watched = spread(job.split.retain, WATCHED)
        unseen = unseen_samples(job.split, config.unseen)
        self.estimator = TargetEstimator(job.model, job.split, unseen, config.seed)
        target = self.estimator.estimate(job.model)
        self.target = replace(target, margins=_with_earlier(target.margins, job.model, job.split))
        self.before, self.retained_before = self.measure()
        # Falls add up over requests: each starts from the network that the last one left.
        self.retained_fall = RECOVERED / len(job.split.requests)
        self.steps, self.rounds, self.elapsed, self.logit_scale = 0, 0, 0.0, 1.0
        self.extensions: list[Extension] = []

    @property
    def limited(self) -> bool:
        """Whether the user limited the steps; then none are added to the plan."""
        return self.config.max_steps(len(self.split.retain)) is not None

    @property
    def depth_needed(self) -> Depth:
        """Deep if the samples are memorised: after shallow forgetting, fine-tuning restores most.

        Memorised: the mean confidence is more than `MEMORISED` points above its target.
        """
        target = self.target.margins[self.split.forget].sigmoid().mean()
        above = 100 * float(self.before.sigmoid().mean() - target)
        return "deep" if above > MEMORISED else "shallow"

    @property
    def temperature_samples(self) -> Tensor:
        """The samples that the temperature is fitted on: unseen ones, plus a random forget set.

        A random forget set, once forgotten, is distributed like unseen data; another choice may be
        easier or harder.
        """
        random = self.split.requests[-1].kind == "random"
        return torch.cat([self.estimator.unseen, self.split.forget[: None if random else 0]])

    def forget(self, depth: Depth) -> Calibration:
        """Forget at a depth.

        If retained accuracy did not recover, the repair is repeated; if the target is missed, the
        samples are pushed again. Shallow forgetting does one of the two at most: it is to be short.
        """
        config = self.config.model_copy(update={"depth": depth})
        sizes = len(self.pushed), len(self.split.retain)
        planned, schedule = config.schedule(*sizes, limited=False), config.schedule(*sizes)
        calibration = self.run(schedule)
        added: list[Extension] = []
        if not calibration.recovered and not self.limited:
            added.append("retained")
            calibration = self.run(schedule.repair_alone())
        if calibration.state == "short" and not self.limited and (depth == "deep" or not added):
            # At the deep learning rate confidence is low everywhere, and no sample is pushed.
            added.append("target")
            shallow = config.model_copy(update={"depth": "shallow"})
            calibration = self.run(shallow.schedule(*sizes))
        self.extensions += added
        return replace(
            calibration,
            depth=depth,
            depth_asked=self.config.depth is not None,
            steps=self.steps,
            lr=planned.lr,
            limited=schedule.steps < planned.steps,
            waited_for=tuple(self.extensions),
        )

    def run(self, schedule: Schedule) -> Calibration:
        """Run a schedule, restore the temperature, and measure what was reached."""
        model = self.job.model
        self.optimize(schedule)
        self.logit_scale *= rescale_temperature(
            model, self.split, self.temperature_samples, self.target.entropy
        )
        after, retained_after = self.measure()
        # Estimated again: forgetting may have lowered the confidence on unseen samples, too.
        target = self.estimator.estimate(model)
        return replace(
            calibration_of(target, self.split, self.before, after),
            retained_before=self.retained_before,
            retained_after=retained_after,
            retained_fall=self.retained_fall,
            logit_scale=self.logit_scale,
        )

    def optimize(self, schedule: Schedule) -> None:
        """Run the training loop over a schedule; its rows continue the history."""
        rounds, elapsed = self.rounds, self.elapsed

        def record(row: Epoch) -> None:
            self.rounds, self.elapsed = rounds + row.epoch, round(elapsed + row.elapsed, 3)
            self.job.on_epoch(replace(row, epoch=self.rounds, elapsed=self.elapsed))

        step = {name: getattr(self.config, name) for name in StepConfig.model_fields}
        replace(self.job, on_epoch=record).optimize(
            OptimizerConfig(**{**step, "epochs": schedule.rounds, "lr": schedule.lr}),
            lambda model: Push(
                self.job, self.config, model, self.target, schedule, self.pushed, self.estimator
            ),
            prepare=lambda: perturb(self.job.model, schedule.noise, "noise", self.config.seed),
        )
        self.steps += schedule.steps

    def measure(self) -> tuple[Tensor, float]:
        """The log-odds of the forget samples, and the accuracy on `WATCHED` retained ones."""
        model, data, labels = self.job.model, self.split.data, self.split.data.labels
        odds = margin(predict(model, data, self.split.forget), labels[self.split.forget])
        return odds, accuracy(predict(model, data, self.watched), labels[self.watched])


def unseen_samples(split: Split, choice: str) -> Tensor:
    """The samples that the target is estimated from; raises if there are fewer than `FEWEST`.

    Samples of classes that no retained sample belongs to are left out.

    Args:
        split: The split.
        choice: The setting `unseen`: a part, or a fraction of one.
    """
    rows = _of_retained_classes(split, choice)
    if len(rows) >= FEWEST:
        return rows
    choices = ("held_out", "test:0.2", "test")
    better = [f"--set unseen={c}" for c in choices if len(_of_retained_classes(split, c)) >= FEWEST]
    raise UserError(
        f"Method 'calibrated' needs at least {FEWEST} unseen samples, and {choice!r} has "
        f"{len(rows)} of retained classes; use "
        f"{' or '.join([*better[:1], '--method oeu'])}, or a run that has more."
    )


def _of_retained_classes(split: Split, choice: str) -> Tensor:
    """The chosen samples of retained classes."""
    part, _, fraction = choice.partition(":")
    rows = {"held_out": split.held_out, "test": split.test}[part]
    if fraction:
        drawn = shuffled([split.data.ids[row] for row in rows.tolist()], "unseen")
        rows = rows[sorted(drawn[: round(float(fraction) * len(rows))])]
    labels = split.data.labels
    return rows[torch.isin(labels[rows], labels[split.retain])]


def earlier_samples(split: Split) -> Tensor:
    """At most `EARLIER` samples of earlier requests; they are held at their mean confidence."""
    earlier = [rows for rows in split.earlier if len(rows)]
    return spread(torch.cat(earlier), EARLIER) if earlier else split.forget[:0]


def _with_earlier(margins: Tensor, model: nn.Module, split: Split) -> Tensor:
    """The targets, plus those of samples of earlier requests: their present log-odds."""
    rows, margins = earlier_samples(split), margins.clone()
    margins[rows] = margin(predict(model, split.data, rows), split.data.labels[rows])
    return margins
