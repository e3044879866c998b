"""Q-MUL: labels that are wrong but near, and each part weighted by the other's gradient."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from qunlearn.data import Loader
from qunlearn.methods.base import Job, Range, method
from qunlearn.methods.relabel import Lesson, RelabelConfig, Relabelled
from qunlearn.methods.whole_gradient import whole_gradient
from qunlearn.training.inference import predict


class QmulConfig(RelabelConfig):
    """Q-MUL's settings."""

    search = {"lr": Range(1e-3, 1e-1)}


@method("qmul", config=QmulConfig, source="Q-MUL, the OEU authors' earlier work")
def qmul(job: Job, config: QmulConfig) -> None:
    """Teach similar wrong labels, each part weighted by the other part's gradient."""
    data, forget, retain = job.split.data, job.split.forget, job.split.retain

    def lesson(epoch: int) -> Lesson:
        if not job.fabric.is_global_zero:
            return job.fabric.broadcast(Lesson(data.labels[forget]))  # the first process's comes
        labels = similar_labels(predict(job.model, data, forget), data.labels[forget])
        taught = data.labels.clone()
        taught[forget] = labels
        of_forget, of_retain = (
            gradient_size(job.model, job.measuring(index, config), epoch, taught)
            for index in (forget, retain)
        )
        total = of_forget + of_retain
        # Both vanish only where there is nothing to learn any more: then both count alike.
        share = of_retain / total if total > 0 else 0.5
        return job.fabric.broadcast(Lesson(labels, share, 1 - share))

    job.optimize(config, lambda model: Relabelled(job, config, model, lesson))


def similar_labels(logits: Tensor, labels: Tensor) -> Tensor:
    """For each sample the other class whose probability is nearest to the true one's.

    >>> similar_labels(torch.tensor([[0.5, 0.2, 0.3]]).log(), torch.tensor([0]))
    tensor([2])
    """
    p = logits.double().softmax(1)
    rows = torch.arange(len(labels))
    distance = (p - p[rows, labels][:, None]).abs()
    distance[rows, labels] = torch.inf
    return distance.argmin(1)


def gradient_size(model: nn.Module, loader: Loader, epoch: int, labels: Tensor) -> float:
    """The mean over batches of the sum of the tensors' gradient norms, in eval mode.

    `labels` has one for each sample of the data set.
    """
    sizes = []
    for batch in loader.epoch(epoch):
        gradient = whole_gradient(
            model,
            loader.data,
            batch.index,
            torch.full((len(batch.index),), 1 / len(batch.index)),
            labels=labels[batch.index],
            batch_size=len(batch.index),
        )
        sizes.append(float(torch.stack(torch._foreach_norm(gradient)).sum()))
    return sum(sizes) / len(sizes)
