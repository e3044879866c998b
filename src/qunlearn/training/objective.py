"""Training objectives: the interface, and cross-entropy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from qunlearn.data import Batch, Loader
from qunlearn.quant import use_running_stats
from qunlearn.store.history import Epoch

Scalars = Mapping[str, Tensor]
"""Scalars that a step reports, left on the device to avoid synchronisation."""


class Objective(ABC):
    """Computes the gradients of each step; the loop does everything else.

    `gradients` must depend only on the model, the epoch, the step and what `before_epoch` and
    `restore` have set, so that a run can be resumed at any step.

    Attributes:
        steps: Number of steps per epoch.
    """

    steps: int

    @abstractmethod
    def gradients(self, epoch: int, step: int) -> Scalars:
        """Write the gradients of one step to `.grad`, and return scalars to report."""

    def before_epoch(self, epoch: int) -> None:  # noqa: B027 (optional)
        """Prepare an epoch."""

    def after_step(self) -> None:  # noqa: B027 (optional)
        """Correct the parameters after the optimizer's step."""

    def report(self, row: Epoch) -> Epoch:
        """Add to the epoch's row of the history."""
        return row

    def state(self) -> Mapping[str, Tensor]:
        """The state within an epoch, for the checkpoint."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:  # noqa: B027 (optional)
        """Restore what `state` returned."""


class CrossEntropy(Objective):
    """Cross-entropy between the predictions and the labels.

    Args:
        fabric: The devices.
        model: The model, as wrapped by Fabric.
        loader: The batches.
        labels: Target labels instead of the true ones: one for each sample of the data set.
        weights: The weight of each sample of the data set, 1 by default; a negative weight is
            gradient ascent.
        steps: Steps per epoch; by default as many as it takes to see every sample once.
    """

    def __init__(
        self,
        fabric: Fabric,
        model: nn.Module,
        loader: Loader,
        *,
        labels: Tensor | None = None,
        weights: Tensor | None = None,
        steps: int | None = None,
    ):
        self.fabric, self.model, self.loader = fabric, model, loader
        self.labels, self.weights = labels, weights
        self.steps = steps or len(loader)
        self.layout = fastest_layout(model)

    def gradients(self, epoch: int, step: int) -> Scalars:
        """The gradient of the batch's mean loss."""
        epoch, step = divmod(epoch * self.steps + step, len(self.loader))
        batch = self.loader.batch(epoch, step)
        images, true = to_device(self.fabric, batch, self.layout)
        targets = true if self.labels is None else self.labels[batch.index].to(true.device)
        # Divided by the global batch size: processes with unequal shares still average correctly.
        size = self.loader.size(step)
        with normalisation(self.model, self.loader):
            logits = self.model(images)
        losses = nn.functional.cross_entropy(logits, targets, reduction="none")
        weighted = losses
        if self.weights is not None:
            weighted = losses * self.weights[batch.index].to(losses)
        self.fabric.backward(weighted.sum() / size * self.fabric.world_size)
        correct = (logits.detach().argmax(1) == true).sum() / size
        return {"loss": losses.detach().sum() / size, "accuracy": 100 * correct}


MIN_BATCH_STATISTICS = 8
"""Minimum number of samples for normalising by batch statistics."""


def normalisation(model: nn.Module, loader: Loader) -> AbstractContextManager[None]:
    """For very few samples, BatchNorm uses its running averages; otherwise nothing changes.

    A request to forget may name a single sample, which has no variance.
    """
    few = len(loader.index) < MIN_BATCH_STATISTICS or loader.smallest_share < 2
    return use_running_stats(model) if few else nullcontext()


def fastest_layout(model: nn.Module) -> torch.memory_format:
    """Channels last is faster, but torch corrupts memory with it in very narrow 1×1 convolutions.

    Observed with torch 2.13 on CPUs: four channels with stride 2 corrupt the heap.
    """
    narrow = any(
        isinstance(m, nn.Conv2d) and m.kernel_size == (1, 1) and min(m.weight.shape[:2]) < 8
        for m in model.modules()
    )
    return torch.contiguous_format if narrow else torch.channels_last


def to_device(fabric: Fabric, batch: Batch, layout: torch.memory_format) -> tuple[Tensor, Tensor]:
    """Move the images and labels of a batch to the device, in the given memory layout."""
    images = batch.images.to(fabric.device, memory_format=layout)
    return images, batch.labels.to(fabric.device)
