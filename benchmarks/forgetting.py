"""Forgetting, batching and measuring, each beside what it cannot do without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from steps import W4A4, build
from timing import Work
from torch import nn

import qunlearn as qu
from qunlearn.data import Augmentation, Split, as_image_data
from qunlearn.methods import Job
from qunlearn.methods.oeu import OeuConfig, OrthogonalEntropy
from qunlearn.metrics import accuracy
from qunlearn.quant import fused
from qunlearn.runs.evaluate import predictions
from qunlearn.store.history import Epoch
from qunlearn.training.config import ComputeConfig
from qunlearn.training.devices import make_fabric
from qunlearn.training.inference import evaluating
from qunlearn.training.objective import CrossEntropy, Objective


def random_split(train: int, forget: int, test: int = 10) -> Split:
    """Random images in ten classes: the first `forget` of those that are trained on must go."""

    def drawn(count: int) -> tuple[Any, Any]:
        images = torch.randint(0, 256, (count, 32, 32, 3), dtype=torch.uint8).numpy()
        return images, (torch.arange(count) % 10).numpy()

    data = as_image_data(drawn(train + 10), test=drawn(test))
    held_out = data.ids[train : train + 10]
    split = qu.Split.make(data, held_out=held_out)
    return split.forget_ids([split.data.ids[row] for row in split.train[:forget].tolist()])


def calibrated(split: Split, width: float = 0.25) -> nn.Module:
    """A W4A4 ResNet-18 whose quantizers have started."""
    net = build("resnet18", width, W4A4)
    qu.calibrate(net, split.data.normalise(split.data.images[:64]))
    return net


class Forgetting:
    """OEU and FT on one network; 640 images are trained on, a tenth of them is to be forgotten."""

    def __init__(self, batch: int = 64, pairing: str = "cycle"):
        self.split = random_split(640, 64)
        self.net = calibrated(self.split).train().to(memory_format=torch.channels_last)
        self.job = Job(self.net, self.split, make_fabric(ComputeConfig()))
        config = OeuConfig(batch_size=batch, pairing=pairing)
        self.loaders = [
            self.job.loader(part, config) for part in (self.split.forget, self.split.retain)
        ]
        self.oeu = OrthogonalEntropy(self.job, config, self.net)
        self.ft = CrossEntropy(self.job.fabric, self.net, self.loaders[1])

    def step(self, objective: Objective, number: int = 0) -> None:
        """One step of what is learned."""
        self.net.zero_grad()
        objective.gradients(0, number)
        if number == objective.steps - 1:
            objective.report(Epoch(epoch=1, seconds=0, elapsed=0))

    def epoch(self, objective: Objective) -> None:
        """All steps of an epoch."""
        for number in range(objective.steps):
            self.step(objective, number)

    def two_passes(self) -> None:
        """A forget and a retain pass, written plainly."""
        forget, retain = (loader.batch(0, 0) for loader in self.loaders)
        layout = torch.channels_last
        self.net.zero_grad()
        qu.negative_entropy(self.net(forget.images.contiguous(memory_format=layout))).backward()
        self.net.zero_grad()
        logits = self.net(retain.images.contiguous(memory_format=layout))
        nn.functional.cross_entropy(logits, retain.labels).backward()


def batching(batch: int = 64) -> Work:
    """The next batch of CIFAR-like images, cropped and mirrored."""
    split = random_split(5000, 1)
    data = replace(split.data, augmentation=Augmentation(crop=4, flip=True))
    loader = qu.Loader(data, torch.arange(5000), batch)
    return lambda: loader.batch(0, 1)


def evaluations(count: int = 2000) -> dict[str, Work]:
    """All figures of a run; the accuracies alone; and the accuracies by a plain loop."""
    split = random_split(count // 2, count // 20, test=count // 2)
    net = calibrated(split)
    data, parts = split.data, split.measured()

    def accuracies() -> None:
        for part, logits in predictions(net, split).items():
            accuracy(logits, data.labels[parts[part]])

    @torch.inference_mode()
    def plain() -> None:
        with evaluating(net), fused(False):
            for index in parts.values():
                rows = [net(data.normalise(data.images[some])) for some in index.split(500)]
                accuracy(torch.cat(rows), data.labels[index])

    return {"all": lambda: qu.evaluate(net, split), "accuracy": accuracies, "plain": plain}


def attack(points: int, exact: bool) -> Work:
    """MIA by our solver or by scikit-learn's SVC, on lifelike confidences."""
    torch.manual_seed(0)
    sizes = (points // 2, points // 2, points // 20)
    scores = [
        torch.sigmoid(mean + spread * torch.randn(n, dtype=torch.float64))
        for n, mean, spread in zip(sizes, (5.0, 2.0, 3.0), (1.5, 3.5, 3.0), strict=True)
    ]
    return lambda: qu.metrics.mia_efficacy(*scores, exact=exact)
