"""OEU, calibrated: forget until the samples look unseen, at right angles to the retain gradient."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import AfterValidator, Field
from torch import Tensor, nn

from qunlearn.data import Split
from qunlearn.data.draw import shuffled
from qunlearn.errors import UserError
from qunlearn.methods.base import Findings, Job, method
from qunlearn.methods.calibration import Aim, calibration_of, find_aim
from qunlearn.methods.projected import Batches, Orthogonal, ProjectedConfig, due
from qunlearn.methods.temperature import expected_entropy, rescale_temperature
from qunlearn.metrics import margin
from qunlearn.store.files import Row
from qunlearn.training.config import Epochs, LearningRate
from qunlearn.training.inference import predict
from qunlearn.training.objective import CrossEntropy, Scalars, fastest_layout, to_device

LR, SMALL, LEAST = 0.01, 0.1, 0.3
"""The learning rate; for requests below the share `SMALL` in proportion, down to `LEAST` of it."""

PUSH = 0.6
"""How strongly a sample is pushed that is far above its aim, against the retain gradient's one."""

SLACK = 0.2
"""How far above its aim a sample's confidence must be for the whole push; nearer, it fades."""

WRONG = 8.0
"""The same in log-odds, for a sample whose aim is to be wrong."""

BELOW = 0.05
"""How far all together may go below their aims, in the mean, before no sample is pushed at all."""

RECENT = 256
"""Over how many samples at most, those pushed last, that mean is taken."""

FEWEST = 10
"""Fewer unseen samples than these show nothing."""

PUSHED, ABOVE, RECENTLY = "pushed", "above", "recently"

EPOCHS = 5

PER_SHARE = 30
"""How many epochs a request for everything would take; one for less takes its share of them."""

PUSHES, TURNS = 64, 15
"""As many forget batches are wanted in all, but no sample has its turn more often for that.

That is at the learning rate `LR`; a smaller one allows more turns, and takes more."""

ONE_TURN = 0.35
"""How far samples come down, in their mean probability, if each has one turn in every epoch."""


def _part_or_share(named: str) -> str:
    if not re.fullmatch(r"(held_out|test)(:0?\.\d+)?", named):
        raise ValueError("choose held_out, test, or a share of either below 1, as test:0.2")
    return named


class CalibratedConfig(ProjectedConfig):
    """The settings of calibrated OEU; none of them needs to be chosen."""

    # How strongly a batch pushes goes by its size, and by how many there are.
    inherits: ClassVar[frozenset[str]] = ProjectedConfig.inherits - {"batch_size"}
    batch_size: int = Field(64, ge=1, description="The most samples in one step.")
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
    # 1: the last layer was left alone, and classes forgotten earlier shaped the aim
    # 2: small requests had the whole learning rate; 3: every push went by probability alone
    revision=4,
)
def calibrated(job: Job, config: CalibratedConfig) -> Findings:
    """Make samples look unseen, and no more: pushed at right angles to the retain gradient."""
    usual = {"epochs": enough(job.split), "lr": gentle(job.split)}
    chosen = {name: value for name, value in usual.items() if getattr(config, name) is None}
    config = CalibratedConfig.parse(dict(config) | chosen)
    unseen = never_seen(job.split, config.unseen)
    job.model.to(job.fabric.device)
    aim = find_aim(job.model, job.split, unseen, config.seed)
    expected = expected_entropy(job.model, job.split, unseen)
    course: list[float] = []

    def keep(row: Row) -> None:
        course.append(row[ABOVE])
        job.on_epoch(row)

    kept = replace(job, on_epoch=keep)
    kept.optimize(config, lambda model: Push(job, config, model, aim))
    factor = rescale_temperature(job.model, job.split, unseen, expected)
    forget, data = job.split.forget, job.split.data
    now = margin(predict(job.model, data, forget), data.labels[forget])
    found = replace(
        calibration_of(aim, job.split, now, course, factor),
        lr=config.lr,
        lowered=tuple(name for name, value in usual.items() if getattr(config, name) < value),
        raised=tuple(name for name, value in usual.items() if getattr(config, name) > value),
    )
    return Findings(chosen, found)


def never_seen(split: Split, named: str) -> Tensor:
    """Where the samples are that show what unseen data looks like.

    Those of a class that is forgotten as a whole, now or before, show nothing.
    """
    rows = _unseen(split, named)
    if len(rows) >= FEWEST:
        return rows
    ways = ("held_out", "test:0.2", "test")
    better = [f"--set unseen={way}" for way in ways if len(_unseen(split, way)) >= FEWEST]
    raise UserError(
        f"It takes {FEWEST} unseen samples or more to show what unseen data looks like, and "
        f"{named!r} has {len(rows)} of retained classes; use "
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


def enough(split: Split) -> int:
    """How many epochs a request takes: what is retained must recover from more pushes each time.

    >>> import qunlearn as qu
    >>> digits = qu.load_dataset("digits", subset=100)
    >>> [enough(qu.Split.random(digits, fraction=share)) for share in (0.1, 0.3, 0.5)]
    [5, 9, 15]
    """
    return max(EPOCHS, round(PER_SHARE * _share(split)))


def gentle(split: Split) -> float:
    """The learning rate: what little a small request spoils needs no large steps to recover.

    >>> import qunlearn as qu
    >>> digits = qu.load_dataset("digits", subset=500)
    >>> splits = [qu.Split.random(digits, fraction=share) for share in (0.5, 0.1, 0.05, 0.01)]
    >>> [round(gentle(split), 3) for split in splits]
    [0.01, 0.01, 0.005, 0.003]
    """
    return round(LR * min(max(_share(split) / SMALL, LEAST), 1), 4)


def _share(split: Split) -> float:
    return len(split.forget) / (len(split.forget) + len(split.retain))


def how_often(forget_steps: int, epochs: int, lr: float, distance: float) -> int:
    """How many times per epoch each forget sample has its turn.

    Args:
        forget_steps: How many forget batches there are.
        epochs: How many epochs.
        lr: The learning rate.
        distance: How far the samples are above their aims at the start, as a mean probability.

    >>> how_often(14, 5, 0.01, 0.3), how_often(7, 5, 0.01, 0.3), how_often(14, 5, 0.01, 0.7)
    (1, 2, 2)
    >>> how_often(1, 5, 0.01, 0.3), how_often(1, 5, 0.003, 0.3)
    (3, 10)
    """
    few = min(round(PUSHES / epochs / forget_steps), int(TURNS * (LR / lr) / epochs))
    return max(1, few, round(distance / ONE_TURN))


def urgency(odds: Tensor, aim: Tensor) -> Tensor:
    """How hard each sample is to be pushed: 0 at its aim and below it, 1 far above.

    That goes by probability. But wrong answers of 1 % and of 0.001 % are alike as probabilities,
    and not to an attack that looks at log-odds: a sample that is to be wrong is pushed by these,
    too. (One of which nothing is to be left has no log-odds to come down to.)

    Args:
        odds: The log-odds of the truth, by sample.
        aim: Those that they are to come down to.

    >>> urgency(torch.tensor([2.0, 2.0, -4.6]), torch.tensor([1.0, 3.0, -11.5]))
    tensor([0.7487, 0.0000, 0.8625])
    """
    far = (odds.sigmoid() - aim.sigmoid()) / SLACK
    wrong = (aim < 0) & aim.isfinite()
    return torch.where(wrong, torch.maximum(far, (odds - aim) / WRONG), far).clamp(0, 1)


class Push(Orthogonal):
    """What a step learns: retain, and push the log-odds of forget batches down to their aim.

    A sample is pushed in proportion to how far it is above its aim. Some go below theirs, taken
    along by the others, and nothing brings those back up; so the push fades for all once all
    together, in the mean, go below.

    Samples are shown as they are, for their aim is about that. BatchNorm normalises by the batch
    and records nothing. Most of the batch are retained samples, augmented as in training, since
    BatchNorm's averages are over such: among themselves, unaugmented samples are normalised
    otherwise than they will be one by one, and reach their aim only there.
    """

    def __init__(self, job: Job, config: CalibratedConfig, model: nn.Module, aim: Aim):
        retaining = CrossEntropy(job.fabric, model, job.loader(job.split.retain, config))
        super().__init__(config.projector(job.model), retaining)
        self.job, self.config, self.model, self.aim = job, config, model, aim
        half = {"batch_size": -(-config.batch_size // 2), "augment": False}
        self.loader = job.loader(job.split.forget, config.model_copy(update=half), "forget")
        self.others = job.loader(job.split.retain, config, "others")
        # More epochs than usual are to bring more passes.
        epochs = min(config.epochs or EPOCHS, enough(job.split))
        distance = aim.distance(job.split.forget)
        self.passes = how_often(len(self.loader), epochs, config.lr or LR, distance)
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
            aim = self.aim.margins[batch.index].to(odds)
            above = odds.detach().sigmoid() - aim.sigmoid()
            self.recently = torch.cat([self.recently, above.cpu()])[-self.recent :]
            weights = urgency(odds.detach(), aim) * (1 + self.recently.mean() / BELOW).clamp(0, 1)
            # Divided by a whole batch, however few the samples are: the push on each is the same.
            # Processes average, so the world's size is put back.
            size = self.config.batch_size / self.job.fabric.world_size
            self.job.fabric.backward(PUSH * (weights * odds).sum() / size)
            self.epoch.append(torch.stack([weights, above]).cpu())
        return {}

    def state(self) -> Mapping[str, Tensor]:
        """How each sample was pushed in the epoch, how far above its aim it was, and of late."""
        epoch = torch.cat(self.epoch, 1) if self.epoch else torch.empty(2, 0)
        pushes = {PUSHED: epoch[0], ABOVE: epoch[1], RECENTLY: self.recently}
        return {**pushes, **super().state()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Resume from there."""
        self.epoch = [torch.stack([state[PUSHED], state[ABOVE]]).cpu()]
        self.recently = state[RECENTLY].cpu()
        own = (PUSHED, ABOVE, RECENTLY)
        super().restore({name: t for name, t in state.items() if name not in own})

    def report(self) -> Mapping[str, Any]:
        """The epoch's means: how hard was pushed, from 0 to 1, and the points above the aims."""
        pushed, above = torch.cat(self.epoch, 1).mean(1).tolist()
        self.epoch = []
        if self.job.fabric.world_size > 1:
            self.recently = torch.empty(0)  # each process has its own, and only one can be saved
        return {PUSHED: round(pushed, 4), ABOVE: round(100 * above, 2), **super().report()}
