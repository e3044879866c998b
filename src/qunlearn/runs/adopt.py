"""Adopting a model that was trained elsewhere: from a state dict to a run folder."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from qunlearn.data import ImageData, Split, read_ids
from qunlearn.data.choose import draw_held_out
from qunlearn.data.manifest_key import ManifestKey
from qunlearn.errors import UserError
from qunlearn.metrics.confidence import margin
from qunlearn.metrics.exposure import exposure
from qunlearn.models import ModelSpec
from qunlearn.quant import QuantSpec
from qunlearn.runs.config import AdoptConfig
from qunlearn.runs.data import known_as, load_data
from qunlearn.runs.declared import check_unseen, completed, declared_split
from qunlearn.runs.evaluate import labels_of, predictions
from qunlearn.runs.mismatch import check_inputs
from qunlearn.runs.model_file import is_quantized, model_with
from qunlearn.runs.train import header_of, launch_run, model_spec, quant_spec, train_into, with_key
from qunlearn.store.info import HeldOutCheck, RunInfo
from qunlearn.store.pickled import refuse_pickled
from qunlearn.store.run import Run
from qunlearn.store.weights import read_tensors
from qunlearn.training.config import OptimizerConfig
from qunlearn.training.devices import make_fabric
from qunlearn.training.train import calibrate_first, check_fits


def adopt_run(config: AdoptConfig, out: Path, *, resume: bool = False) -> Run:
    """Check a foreign model and what is said about it, quantize it if asked, keep it in `out`.

    With `resume`, resume the run that was begun there, if there is one.
    """
    Run.check_free(out, resume)
    if config.held_out is None and config.retrain_of is None:
        raise UserError("The setting 'held_out' is missing; give it with --held-out.")
    refuse_pickled(config.weights)
    tensors = read_tensors(config.weights)
    origin = None if config.retrain_of is None else Run.open(config.retrain_of)
    if origin is not None:
        config = completed(config, origin, tensors)
    quant = quant_spec(config)
    known_by = ManifestKey.read(out if origin is None else origin.path)
    usual = known_as(load_data(config), config, known_by)
    if origin is None:
        split = with_key(listed_split(config, usual), out)
    else:
        split = declared_split(config, origin, usual)
    data, trained_rows = split.data, split.retain
    spec = model_spec(config.model, config.width, data)
    tensors = unwrapped(tensors, spec)
    settings = {name: getattr(config, name) for name in OptimizerConfig.model_fields}
    optimizer = OptimizerConfig(**settings | {"epochs": max(config.epochs, 1)})
    model = model_with(spec, quant, tensors, config.weights)
    check_fits(model, data, trained_rows, optimizer, config.processes)
    # Before it is quantized, if it is not yet: rounding would blur what it remembers.
    full = QuantSpec(quantizer="none")
    adopted = model if is_quantized(tensors) else model_with(spec, full, tensors, config.weights)
    logits = predictions(adopted, split)
    margins = {part: margin(logits[part], labels) for part, labels in labels_of(split).items()}
    if origin is None:
        info = RunInfo(held_out_check=check_held_out(margins))
    else:
        info = RunInfo(method="retrain", declared=check_unseen(margins, origin, quant))
    check_inputs(
        adopted, data, usual, trained_rows, logits["train" if origin is None else "retain"]
    )

    calibrate_first(model.eval(), data, trained_rows, optimizer)
    fabric = make_fabric(config)
    work = partial(
        train_into,
        model=model,
        split=split,
        header=header_of(spec, quant, split),
        optimizer=optimizer if config.epochs else None,
        info=info,
    )
    return launch_run(fabric, out, config, split, resume, work)


def listed_split(config: AdoptConfig, data: ImageData) -> Split:
    """The split that the lists say."""
    data = normalised_as(data, config.mean, config.std)
    return Split.make(
        data,
        held_out=held_out_ids(config, data),
        trained_on=read_ids(config.trained_on, config.column) if config.trained_on else None,
        seed=config.split_seed,
    )


def held_out_ids(config: AdoptConfig, data: ImageData) -> list[str]:
    """The samples that the network never saw: listed in a file, or drawn from the test part."""
    assert config.held_out is not None  # seen to by `adopt_run`
    part, colon, share = str(config.held_out).partition(":")
    if part != "test" or not colon:
        return read_ids(config.held_out, config.column)
    try:
        drawn = draw_held_out(data, float(share), config.split_seed, test=True)
    except ValueError:  # the share is no number, or none between 0 and 1
        raise UserError(
            f"--held-out {config.held_out} is invalid: give a share between 0 and 1, as "
            "test:0.2, or a file of ids."
        ) from None
    if not len(drawn):
        raise UserError(
            f"--held-out {config.held_out} asks for a share of the test part, and {data.name} has "
            "too few test samples; give a file of ids."
        )
    return [data.ids[row] for row in drawn.tolist()]


def unwrapped(tensors: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """A state dict without the names that torch.compile and DataParallel put before those within.

    A network may have a part called `module` itself; its name stays.
    """
    tensors = {re.sub(r"(^|\.)_orig_mod\.", r"\1", name): each for name, each in tensors.items()}
    within = any(name.startswith("module.") for name in spec.build().state_dict())
    while tensors and not within and all(name.startswith("module.") for name in tensors):
        tensors = {name.removeprefix("module."): each for name, each in tensors.items()}
    return tensors


def check_held_out(margins: Mapping[str, Tensor]) -> HeldOutCheck:
    """Whether the held-out part looks as unseen as it is said to be; raises if it does not."""
    names = {"held_out": "held-out", "train": "trained", "test": "test"}
    parts = {part: margins.get(part, torch.zeros(0)) for part in names}
    result = exposure(parts["train"], parts["held_out"], parts["test"])
    if result.verdict == "trained on":
        raise UserError(
            "The held-out data looks trained on: confidence on it is as on the training part, and "
            "higher than on the test part; name data that the network never saw with --held-out."
        )
    if result.verdict == "swapped":
        confidences = ", ".join(
            f"{100 * float(parts[part].sigmoid().mean()):.1f} % on {name} samples"
            for part, name in names.items()
            if len(parts[part])
        )
        raise UserError(
            "The lists look swapped: confidence on the held-out samples is higher than on the "
            f"trained ones (mean confidence in the true label: {confidences}); swap --trained-on "
            "and --held-out, or hold out samples of the same kind as the trained ones."
        )
    return HeldOutCheck(result.verdict, result.samples, result.reason)


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
        raise UserError(f"--mean = {mean} is invalid: give finite numbers.")
    if not all(math.isfinite(value) and value > 0 for value in std or ()):
        raise UserError(f"--std = {std} is invalid: give numbers above zero.")
    return replace(data, mean=mean or data.mean, std=std or data.std)
