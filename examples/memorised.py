"""What the examples share: noisy digits, and a network of a few bits that has memorised them.

Clean digits are right whether they were trained on or not: nothing to forget. With noise a network
gets its training samples right only because it has memorised them.
"""

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

import qunlearn as qu

RECIPE = {"epochs": 40, "batch_size": 64, "lr": 0.1}
BEFORE, AFTER, RETRAIN = "#b0561f", "#1f6fb0", "#6b6b6b"
"""Colours that remain distinct to colour-blind readers, and in print."""


@cache
def noisy_digits() -> qu.ImageData:
    """Scikit-learn's digits with noise, each hundred of them by one user."""
    digits = qu.load_dataset("digits")
    images, labels, test = (
        digits.images[:, 0].numpy(),
        digits.labels.numpy(),
        digits.is_test.numpy(),
    )
    noise = np.random.default_rng(0).normal(0, 90, images.shape)
    images = (images + noise).clip(0, 255).astype(np.uint8)
    users = [f"user-{n // 100}" for n in range(int((~test).sum()))]
    return qu.Data(
        train=(images[~test], labels[~test]),
        test=(images[test], labels[test]),
        metadata={"user": users},
    )


def build(seed: int = 0, bits: int = 4) -> nn.Module:
    """An untrained network of low-bit convolutions."""
    torch.manual_seed(seed)
    net = qu.ModelSpec("cnn", classes=10, channels=1, size=8).build()
    return qu.quantize(net, qu.QuantSpec(weights=bits, activations=bits))


def original(bits: int = 4) -> nn.Module:
    """The network before forgetting, trained on all but the held-out samples."""
    return trained(bits)


@cache
def trained(bits: int) -> nn.Module:
    """The same: `cache` takes `original()` and `original(4)` for two calls, and trains twice."""
    return qu.train(build(bits=bits), undivided(), **RECIPE)


@cache
def undivided() -> qu.Split:
    """The split before any request: 30 % of the training samples are held out."""
    return qu.Split.make(noisy_digits(), held_out=0.3)


@cache
def request() -> qu.Split:
    """The request that most examples answer: a random fifth of the training samples."""
    return undivided().forget_random(0.2)


@cache
def retrained(bits: int = 4) -> nn.Module:
    """The same network trained again without the forgotten samples: what forgetting aims at."""
    return qu.forget(
        original(bits), request(), "retrain", fresh=lambda seed: build(seed, bits), **RECIPE
    ).model


def probabilities(model: nn.Module, rows: Tensor) -> Tensor:
    """The network's prediction on some rows of the data."""
    data = noisy_digits()
    with torch.no_grad():
        return model.eval()(data.normalise(data.images[rows])).softmax(1)


def confidence(model: nn.Module, rows: Tensor) -> np.ndarray:
    """The probability of the true label."""
    labels = noisy_digits().labels[rows]
    return probabilities(model, rows).gather(1, labels[:, None])[:, 0].numpy()
