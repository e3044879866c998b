"""The calibrated objective: learn retained samples, lower forget samples to their targets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from qunlearn.data.draw import generator
from qunlearn.methods.base import Job
from qunlearn.methods.calibration import Target, TargetEstimator
from qunlearn.methods.constants import BELOW, FORGET_BATCH, PUSH, RECENT, SLACK, WRONG
from qunlearn.methods.schedule import Schedule
from qunlearn.metrics import margin
from qunlearn.store.history import Epoch
from qunlearn.training.config import StepConfig
from qunlearn.training.objective import (
    Objective,
    Scalars,
    fastest_layout,
    normalisation,
    to_device,
)

PUSHED, ABOVE, TARGETS = "pushed", "above", "targets"
RECENTLY, EARLIER = "recently", "earlier"

NO_TARGET = -1e30
"""What stands for -∞ in a checkpoint, which holds finite numbers alone."""


@torch.no_grad()
def perturb(model: nn.Module, noise: float, *key: int | str) -> None:
    """Add Gaussian noise to the weights of all layers, and scale them back to their old spread.

    Their spread stays, because the quantizers' scales fit it: `(w + noise * n) / √(1 + noise²)`,
    with n as spread as w. Biases, BatchNorm and quantizers are left as they are.
    """
    if not noise:
        return
    draw = generator(*key)
    for parameter in model.parameters():
        if parameter.dim() < 2 or not parameter.requires_grad:
            continue
        drawn = torch.from_numpy(draw.standard_normal(parameter.shape, dtype="float32"))
        scale = noise * parameter.std(correction=0)
        parameter.add_(scale * drawn.to(parameter)).div_(math.sqrt(1 + noise**2))


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


class Push(Objective):
    """Cross-entropy on retained samples, plus a push that lowers forget samples to their targets.

    A sample is pushed in proportion to its distance above its target. Samples below target are not
    raised. To limit overshoot, all pushes fade as the mean falls below the targets.

    Samples of earlier requests are pushed only while their mean is above what it was: single ones
    rise and fall by chance, and pushing each that rose would lower them all, request by request.

    Retained and forget samples go through the network together: one pass, and BatchNorm normalises
    both alike. Forget samples are not augmented, since their targets are not.
    """

    def __init__(
        self,
        job: Job,
        config: StepConfig,
        model: nn.Module,
        target: Target,
        schedule: Schedule,
        pushed: Tensor,
        estimator: TargetEstimator,
    ):
        self.job, self.model, self.target, self.schedule = job, model, target, schedule
        self.estimator = estimator
        plain = config.model_copy(update={"augment": False})
        small = plain.model_copy(update={"batch_size": min(FORGET_BATCH, config.batch_size)})
        self.augmented = job.loader(job.split.retain, config)
        self.plain = job.loader(job.split.retain, plain, "plain")
        self.loader = job.loader(pushed, small, "forget")
        self.batch_size = config.batch_size
        self.steps = schedule.steps // schedule.rounds
        self.layout = fastest_layout(job.model)
        self.requested = torch.zeros(len(job.split.data), dtype=torch.bool)
        self.requested[job.split.forget] = True
        self.round: list[Tensor] = []
        self.recently = self.earlier = torch.empty(0)
        self.count = len(job.split.forget), len(pushed) - len(job.split.forget)

    def follow(self) -> None:
        """Estimate the target again: the network has changed.

        At a high learning rate it is less confident in all samples, seen or not.
        """
        margins, forget = self.target.margins.clone(), self.job.split.forget
        margins[forget] = self.estimator.estimate(self.job.model).margins[forget]
        self.target = replace(self.target, margins=margins)

    def gradients(self, epoch: int, step: int) -> Scalars:
        """The gradient of the retain loss, plus the push of the forget batch that is due."""
        at = epoch * self.steps + step
        if self.schedule.follows_at(at):
            self.follow()
        loader = self.augmented if at < self.schedule.plain_from else self.plain
        number = self.schedule.push_at(at)
        retained = loader.batch(*divmod(at, len(loader)))
        images, labels = to_device(self.job.fabric, retained, self.layout)
        world = self.job.fabric.world_size
        with normalisation(self.model, loader):
            if number is None:
                logits, push = self.model(images), torch.zeros(())
            else:
                batch = self.loader.batch(*divmod(number, len(self.loader)))
                forgotten, true = to_device(self.job.fabric, batch, self.layout)
                logits = self.model(torch.cat([images, forgotten]))
                odds = margin(logits[len(labels) :].float(), true)
                # By the batch size, not the actual count: a partial batch has the same push per
                # sample.
                push = PUSH * (self.weights(odds.detach(), batch.index) * odds).sum()
                push = push / self.batch_size * world
        losses = nn.functional.cross_entropy(logits[: len(labels)], labels, reduction="none")
        size = loader.size(at % len(loader))
        # Processes average their gradients, which the world size undoes.
        self.job.fabric.backward(losses.sum() / size * world + push)
        return {"loss": losses.detach().sum() / size}

    def weights(self, odds: Tensor, index: Tensor) -> Tensor:
        """How hard each sample of a forget batch is pushed."""
        target, requested = self.target.margins[index].to(odds), self.requested[index]
        above = (odds.sigmoid() - target.sigmoid()).cpu()
        self.recently = self._latest(self.recently, above[requested], self.count[0])
        self.earlier = self._latest(self.earlier, above[~requested], self.count[1])
        fade = (1 + _mean(self.recently) / BELOW).clamp(0, 1)
        hold = (_mean(self.earlier) / BELOW).clamp(0, 1)
        weights = urgency(odds, target) * torch.where(requested, fade, hold).to(odds)
        self.round.append(torch.stack([weights.cpu(), above])[:, requested])
        return weights

    def _latest(self, recently: Tensor, above: Tensor, count: int) -> Tensor:
        """The latest distances of a group, over all processes: at most one for each sample."""
        return torch.cat([recently, self._gathered(above)])[-min(RECENT, count) :]

    def _gathered(self, above: Tensor) -> Tensor:
        """The distances of all processes: their pushes fade alike."""
        fabric = self.job.fabric
        if fabric.world_size == 1:
            return above
        padded = torch.full((FORGET_BATCH,), torch.nan)  # their shares may be of unequal size
        padded[: len(above)] = above
        gathered = fabric.all_gather(padded.to(fabric.device))
        assert isinstance(gathered, Tensor)
        everywhere = gathered.flatten().cpu()
        return everywhere[~everywhere.isnan()]

    def state(self) -> Mapping[str, Tensor]:
        """The pushes and distances above target in the round, and what steers the next ones."""
        in_round = torch.cat(self.round, 1) if self.round else torch.empty(2, 0)
        targets = self.target.margins[self.job.split.forget].clamp(min=NO_TARGET)
        steers = {RECENTLY: self.recently, EARLIER: self.earlier, TARGETS: targets}
        return {PUSHED: in_round[0], ABOVE: in_round[1], **steers}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Resume from there."""
        self.round = [torch.stack([state[PUSHED], state[ABOVE]]).cpu()]
        self.recently, self.earlier = state[RECENTLY].cpu(), state[EARLIER].cpu()
        margins = self.target.margins.clone()
        targets = state[TARGETS].cpu()
        margins[self.job.split.forget] = targets.where(targets > NO_TARGET, -torch.inf)
        self.target = replace(self.target, margins=margins)

    def report(self, row: Epoch) -> Epoch:
        """Add the round's means: the weight of the push, and the points above the targets."""
        in_round = torch.cat(self.round, 1) if self.round else torch.empty(2, 0)
        self.round = []
        if not in_round.shape[1]:
            return row
        pushed, above = in_round.mean(1).tolist()
        return replace(row, pushed=round(pushed, 4), above=round(100 * above, 2))


def _mean(distances: Tensor) -> Tensor:
    return distances.mean() if len(distances) else torch.zeros(())
