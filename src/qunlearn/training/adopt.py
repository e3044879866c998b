"""Adopting a model that was trained elsewhere: from a state dict to a run folder."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from torch import nn

from qunlearn.data import ImageData, Split, read_ids
from qunlearn.errors import UserError
from qunlearn.metrics.confidence import margin
from qunlearn.metrics.exposure import Exposure, exposure
from qunlearn.store.run import Run
from qunlearn.store.weights import read_tensors
from qunlearn.training.checkpoint import model_with
from qunlearn.training.config import AdoptConfig, OptimizerConfig
from qunlearn.training.devices import make_fabric
from qunlearn.training.evaluate import load_data
from qunlearn.training.inference import predict
from qunlearn.training.train import (
    calibrate_first,
    finish,
    header_of,
    model_spec,
    quant_spec,
    train,
)


def adopt_run(config: AdoptConfig, out: Path) -> Run:
    """Check a foreign model and what is said about it, quantize it if asked, keep it in `out`."""
    Run.check_free(out)
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
    model = model_with(spec, quant, tensors, config.weights).eval()
    calibrate_first(model, data, split.train, OptimizerConfig(**settings | {"epochs": 1}))
    found = check_held_out(model, split)
    if found.verdict == "trained on":
        raise UserError(found.sentence)

    fabric = make_fabric(config)
    run = Run.create(out)
    run.write_config(config.to_dict())
    run.write_split(split.to_json())
    started = time.perf_counter()
    if config.epochs:
        train(
            model,
            split,
            on_epoch=run.append_history,
            fabric=fabric,
            title="fine-tuning",
            **settings,
        )
    seconds = {"training": time.perf_counter() - started}
    info = {"held_out_check": found.sentence}
    finish(run, model, split, header_of(spec, quant, split), seconds, info)
    return run


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
    if std is not None and min(std) <= 0:
        raise UserError(f"--std = {std} is not possible: give numbers above zero.")
    return replace(data, mean=mean or data.mean, std=std or data.std)
