"""Adopting a model that was trained elsewhere: from a state dict to a run folder."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

from torch import nn

from qunlearn.data import ImageData, Split, read_ids
from qunlearn.errors import UserError
from qunlearn.metrics.confidence import margin
from qunlearn.metrics.exposure import Exposure, exposure
from qunlearn.quant import QuantSpec
from qunlearn.store.run import Run
from qunlearn.store.weights import read_tensors
from qunlearn.training.checkpoint import is_quantized, model_with
from qunlearn.training.config import AdoptConfig, OptimizerConfig
from qunlearn.training.devices import make_fabric
from qunlearn.training.evaluate import load_data
from qunlearn.training.inference import predict
from qunlearn.training.train import (
    calibrate_first,
    check_fits,
    header_of,
    made,
    model_spec,
    quant_spec,
    train_into,
)


def adopt_run(config: AdoptConfig, out: Path, *, resume: bool = False) -> Run:
    """Check a foreign model and what is said about it, quantize it if asked, keep it in `out`.

    With `resume`, go on with the run that was begun there, if there is one.
    """
    Run.check_free(out, resume)
    quant = quant_spec(config)
    tensors = read_tensors(config.weights)
    data = normalised_as(load_data(config), config.mean, config.std)
    split = Split.make(
        data,
        held_out=read_ids(config.held_out),
        trained_on=read_ids(config.trained_on) if config.trained_on else None,
        seed=config.split_seed,
    )
    spec = model_spec(config.model, config.width, data)
    settings = {name: getattr(config, name) for name in OptimizerConfig.model_fields}
    optimizer = OptimizerConfig(**settings | {"epochs": max(config.epochs, 1)})
    model = model_with(spec, quant, tensors, config.weights)
    check_fits(model, data, split.train, optimizer, config.devices)
    # Before it is quantized, if it is not yet: rounding would blur what it remembers.
    full = QuantSpec(quantizer="none")
    given = model if is_quantized(tensors) else model_with(spec, full, tensors, config.weights)
    found = check_held_out(given, split)
    if found.verdict == "trained on":
        raise UserError(found.sentence)

    calibrate_first(model.eval(), data, split.train, optimizer)
    fabric = make_fabric(config)
    work = partial(
        train_into,
        model=model,
        split=split,
        header=header_of(spec, quant, split),
        settings=settings,
        info={"held_out_check": found.sentence},
    )
    return made(fabric, out, config, split, resume, work)


def check_held_out(model: nn.Module, split: Split) -> Exposure:
    """Whether the held-out part looks as unseen as it is said to be."""
    train, held_out, test = (
        margin(predict(model, split.data, index), split.data.labels[index])
        for index in (split.train, split.held_out, split.test)
    )
    return exposure(train, held_out, test)


def normalised_as(
    data: ImageData, mean: tuple[float, ...] | None, std: tuple[float, ...] | None
) -> ImageData:
    """The data set, normalised as the model was trained with."""
    for name, values in (("mean", mean), ("std", std)):
        if values is not None and len(values) != data.channels:
            raise UserError(
                f"--{name} has {len(values)} numbers for {data.channels} channels; give one each."
            )
    if not all(map(math.isfinite, mean or ())):
        raise UserError(f"--mean = {mean} is not possible: give finite numbers.")
    if not all(math.isfinite(value) and value > 0 for value in std or ()):
        raise UserError(f"--std = {std} is not possible: give numbers above zero.")
    return replace(data, mean=mean or data.mean, std=std or data.std)
