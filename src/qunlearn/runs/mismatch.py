"""What is likely wrong where an adopted network fails on samples that it was trained on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor, nn

from qunlearn.data import ImageData
from qunlearn.errors import UserError
from qunlearn.metrics.mismatch import best_order, guesses, halves_errors
from qunlearn.training.inference import TOGETHER, scoring

TRIED = 500
"""On how many samples each other way to use the network is tried."""

Numbers = tuple[float, ...]
NORMALISATIONS: dict[int, list[tuple[Numbers, Numbers]]] = {
    1: [((0.0,), (1.0,)), ((0.5,), (0.5,)), ((0.0,), (1 / 255,)), ((0.1307,), (0.3081,))],
    3: [
        ((0.0,) * 3, (1.0,) * 3),
        ((0.5,) * 3, (0.5,) * 3),
        ((0.0,) * 3, (1 / 255,) * 3),
        ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ],
}
"""Usual ones, by channels: none, -1 to 1, pixels from 0 to 255, MNIST's and ImageNet's."""


@dataclass(frozen=True, eq=False)
class Way:
    """Another way to use a network: in words with the remedy, and with which inputs."""

    words: str
    data: ImageData
    reverse: bool = False


def check_inputs(
    model: nn.Module, data: ImageData, usual: ImageData, index: Tensor, logits: Tensor
) -> None:
    """Raise if the network seems to get other inputs or labels than it was trained on.

    That is if it does no better than guessing on samples that it was trained on, or if it makes
    less than half as many errors with another usual normalisation, channel order or class order.

    Args:
        model: The network.
        data: The data, normalised as it is said to have been trained.
        usual: The same, with the data set's own normalisation.
        index: The samples that it was trained on.
        logits: Its outputs on them.
    """
    labels = data.labels[index]
    order, errors_then = best_order(logits, labels)
    errors = int((logits.argmax(dim=1) != labels).sum())
    right = f"The network gets {_percent(errors, index)} of the samples it was trained on right"
    some = index[torch.linspace(0, len(index) - 1, min(TRIED, len(index))).round().long()]
    errors_now = _errors(model, data, some)
    ways = list(_other_ways(data, usual))
    tests = len(ways) + 1
    if halves_errors(errors_now, 0, tests):
        errors_of = {way: _errors(model, way.data, some, way.reverse) for way in ways}
        best = min(errors_of, key=lambda way: errors_of[way])
        if halves_errors(errors_now, errors_of[best], tests):
            raise UserError(f"{right}, and {_percent(errors_of[best], some)} {best.words}.")
    if halves_errors(errors, errors_then, tests):
        raise UserError(
            f"{right}, and {_percent(errors_then, index)} if its outputs stand for other classes "
            f"({_moved(order, data.classes)}): its classes are in another order than the data "
            "set's; reorder the rows of its last layer, or the labels of the data."
        )
    if guesses(logits, labels):
        raise UserError(
            f"{right}, no more than by guessing. It may have been trained with another "
            "normalisation than this (give --mean and --std), with another order of channels or "
            "classes, or on other samples (--trained-on), or these are other --weights."
        )


def _other_ways(data: ImageData, usual: ImageData) -> Iterator[Way]:
    normalisations = [(usual.mean, usual.std), *NORMALISATIONS.get(data.channels, [])]
    for mean, std in dict.fromkeys(normalisations):
        if (mean, std) != (data.mean, data.std):
            flags = f"--mean {_listed(mean)} --std {_listed(std)}"
            yield Way(
                "with another normalisation than it is given here "
                f"(mean {_listed(data.mean)}, std {_listed(data.std)}); "
                f"give the one that it was trained with: {flags}",
                replace(data, mean=mean, std=std),
            )
    if data.channels == 3:
        yield Way(
            "with the channels in reverse order; "
            "reverse the input channels of its first layer (weight.flip(1)), or those of the data",
            data,
            reverse=True,
        )


def _errors(model: nn.Module, data: ImageData, index: Tensor, reverse: bool = False) -> int:
    wrong = 0
    with scoring(model) as logits:
        for part in torch.split(index, TOGETHER):
            images = data.normalise(data.images.index_select(0, part))
            answers = logits(images.flip(1) if reverse else images).argmax(dim=1)
            wrong += int((answers != data.labels[part]).sum())
    return wrong


def _percent(errors: int, index: Tensor) -> str:
    return f"{100 - 100 * errors / len(index):.1f} %"


def _listed(values: Numbers) -> str:
    return ",".join(f"{value:.6g}" for value in values)


def _moved(order: list[int], classes: tuple[str, ...]) -> str:
    pairs = ((output, label) for output, label in enumerate(order) if output != label)
    shown = [f"output {output} for {classes[label]!r}" for output, label in islice(pairs, 3)]
    return ", ".join(shown) + ", ..."
