"""What a step of the loop learns: the interface, and cross-entropy, the usual case."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from qunlearn.data import Batch, Loader
from qunlearn.quant import use_running_stats
from qunlearn.store.files import Row

Scalars = Mapping[str, Tensor]
"""What a step reports, still on the device: waiting for a number would stall it."""


class Objective(ABC):
    """What to learn; the loop does everything else.

    `gradients` must depend on nothing but the model, the epoch, the step and what `before_epoch`
    and `restore` have set, so that a run can be resumed at any step.

    Attributes:
        steps: How many steps make an epoch.
    """

    steps: int

    @abstractmethod
    def gradients(self, epoch: int, step: int) -> Scalars:
        """Leave the gradients of one step in `.grad`, and report numbers."""

    def before_epoch(self, epoch: int) -> None:  # noqa: B027 (optional)
        """Prepare an epoch."""

    def after_step(self) -> None:  # noqa: B027 (optional)
        """Correct the parameters after the optimizer's step."""

    def report(self) -> Row:
        """What to add to the epoch's row of the history."""
        return {}

    def state(self) -> Mapping[str, Tensor]:
        """What it remembers within an epoch; saved in the checkpoint."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:  # noqa: B027 (optional)
        """Resume from what `state` returned."""


class CrossEntropy(Objective):
    """Predict the label.

    Args:
        fabric: The devices.
        model: As the devices see it.
        loader: The batches.
        labels: What to predict instead of the true labels: one for each sample of the data set.
        weights: How much each sample of the data set counts, 1 by default; a negative weight
            climbs the loss.
    """

    def __init__(
        self,
        fabric: Fabric,
        model: nn.Module,
        loader: Loader,
        *,
        labels: Tensor | None = None,
        weights: Tensor | None = None,
    ):
        self.fabric, self.model, self.loader = fabric, model, loader
        self.labels, self.weights = labels, weights
        self.steps = len(loader)
        self.layout = fastest_layout(model)

    def gradients(self, epoch: int, step: int) -> Scalars:
        """The gradient of the batch's mean loss."""
        batch = self.loader.batch(epoch, step)
        images, true = to_device(self.fabric, batch, self.layout)
        wanted = true if self.labels is None else self.labels[batch.index].to(true.device)
        # Divided by the global batch, so that processes with unequal shares still average right.
        size = self.loader.size(step)
        with normalisation(self.model, self.loader):
            logits = self.model(images)
        losses = nn.functional.cross_entropy(logits, wanted, reduction="none")
        weighted = losses
        if self.weights is not None:
            weighted = losses * self.weights[batch.index].to(losses)
        self.fabric.backward(weighted.sum() / size * self.fabric.world_size)
        correct = (logits.detach().argmax(1) == true).sum() / size
        return {"loss": losses.detach().sum() / size, "accuracy": 100 * correct}


MIN_BATCH_STATISTICS = 8
"""Number of samples from which on their own mean and variance are worth normalising by."""


def normalisation(model: nn.Module, loader: Loader) -> AbstractContextManager[None]:
    """For parts of a few samples, BatchNorm by its running averages; otherwise as it is.

    A request to forget may name a single sample, which has no variance.
    """
    few = len(loader.index) < MIN_BATCH_STATISTICS or loader.smallest_share < 2
    return use_running_stats(model) if few else nullcontext()


def fastest_layout(model: nn.Module) -> torch.memory_format:
    """Channels last is faster; but torch corrupts memory with it in very narrow 1×1 convolutions.

    (Seen with torch 2.13 on processors: four channels, stride 2, and the heap is broken.)
    """
    narrow = any(
        isinstance(m, nn.Conv2d) and m.kernel_size == (1, 1) and min(m.weight.shape[:2]) < 8
        for m in model.modules()
    )
    return torch.contiguous_format if narrow else torch.channels_last


def to_device(fabric: Fabric, batch: Batch, layout: torch.memory_format) -> tuple[Tensor, Tensor]:
    """A batch's images and labels, where the model is and as its weights are laid out."""
    images = batch.images.to(fabric.device, memory_format=layout)
    return images, batch.labels.to(fabric.device)
