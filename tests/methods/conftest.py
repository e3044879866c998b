from __future__ import annotations

import dataclasses
from functools import partial

import pytest
import torch
from conftest import trained_once
from torch import nn

from qunlearn.data import Split
from qunlearn.models import ModelSpec
from qunlearn.quant import QuantSpec, quantize
from qunlearn.training.train import train

SPEC = ModelSpec("resnet18", 10, 1, 8, 0.125)


def fresh(seed: int) -> nn.Module:
    return quantize(SPEC.build(seed), QuantSpec())


@pytest.fixture(scope="session")
def asked(digits: Split) -> Split:
    """The digits, a tenth of them to be forgotten."""
    return digits.forget_random(0.1)


@pytest.fixture(scope="session")
def trained(digits: Split, tmp_path_factory: pytest.TempPathFactory) -> nn.Module:
    """A 4-bit network that knows the digits; not to be changed."""
    settings = {"epochs": 40, "batch_size": 30, "lr": 0.1, "warmup": 1}
    return trained_once(
        tmp_path_factory,
        "trained",
        partial(fresh, 0),
        lambda model: train(model, digits, **settings),
    )


@pytest.fixture(scope="session")
def float_images(digits: Split) -> Split:
    """The digits as floating-point images, into which NaN can be put."""
    data = digits.data
    scale = 255.0 if data.images.dtype == torch.uint8 else 1.0
    data = dataclasses.replace(data, images=data.images.float() / scale)
    return Split.make(data)


def poisoned(split: Split, *parts: torch.Tensor) -> Split:
    """The split, with NaN in every pixel of these samples."""
    images = split.data.images.clone()
    images[torch.cat(parts)] = torch.nan
    return dataclasses.replace(split, data=dataclasses.replace(split.data, images=images))
