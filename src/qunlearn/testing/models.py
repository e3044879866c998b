"""Checks of a registered model: any image, any number of classes, quantized or not."""

from __future__ import annotations

from itertools import product

import torch

from qunlearn.models import ModelSpec
from qunlearn.quant import QuantSpec, calibrate, families, quantize
from qunlearn.testing.tensors import copied, difference, without_gradient

SIZES = (8, 32, 64)
"""Pixels along a side of the images that a model must take."""


def check_model(name: str) -> None:
    """Check that a model keeps what `qunlearn train` relies on.

    It takes images of 8, 32 and 64 pixels, of one channel or three, and any number of classes; a
    larger width gives more parameters. The seed alone decides its weights, and drawing them leaves
    the global random state as it was. Every quantizer can be put into it, and hands a finite
    gradient to each parameter.

    Args:
        name: As `qunlearn train --model` takes it: a registered name.

    Raises:
        AssertionError: With a sentence about the first thing that is not so.

    Example:
        >>> check_model("cnn")
    """
    who = f"Model {name!r}"
    for size, (channels, classes, width) in product(SIZES, ((1, 2, 0.125), (3, 200, 0.25))):
        model = ModelSpec(name, classes, channels, size, width).build(0)
        chance = torch.Generator().manual_seed(0)
        logits = model(torch.rand(2, channels, size, size, generator=chance))
        assert logits.shape == (2, classes), (
            f"{who} answers two images of {channels}×{size}×{size} with {tuple(logits.shape)}, not "
            f"with {classes} logits each."
        )
        assert torch.isfinite(logits).all(), f"{who} starts with non-finite logits."
    counts = [
        sum(p.numel() for p in ModelSpec(name, 10, 3, 32, width).build(0).parameters())
        for width in (0.25, 0.5, 1.0)
    ]
    assert counts[0] < counts[1] < counts[2], f"{who} is no larger with a larger width: {counts}."
    _check_seed(name)
    for quantizer in families:
        _check_quantized(name, quantizer)


def _check_seed(name: str) -> None:
    spec = ModelSpec(name, 4, 1, 8, 0.125)
    state = torch.get_rng_state()
    first = copied(spec.build(seed=1))
    assert torch.equal(torch.get_rng_state(), state), (
        f"Model {name!r} changes torch's global random state."
    )
    other = difference(first, copied(spec.build(seed=1)))
    assert not other, f"Model {name!r} has other weights for the same seed: {other}."
    assert difference(first, copied(spec.build(seed=2))), f"Model {name!r} ignores its seed."


def _check_quantized(name: str, quantizer: str) -> None:
    model = quantize(ModelSpec(name, 4, 1, 8, 0.125).build(0), QuantSpec(quantizer=quantizer))
    images = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    calibrate(model, images)
    bare = without_gradient(model, images, torch.arange(4))
    assert not bare, f"Model {name!r} with {quantizer!r} gives {bare} no finite gradient."
