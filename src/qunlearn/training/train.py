"""Training an original: from settings to a run folder."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from qunlearn.data import ImageData, Loader, Split
from qunlearn.errors import UserError, unknown
from qunlearn.models import ModelSpec
from qunlearn.quant import QuantSpec, calibrate, quantize
from qunlearn.store.files import as_written
from qunlearn.store.run import Run
from qunlearn.training.checkpoint import Header, model_with, save, tensors_of
from qunlearn.training.config import (
    ComputeConfig,
    Config,
    OptimizerConfig,
    QuantConfig,
    TrainConfig,
)
from qunlearn.training.devices import leave_together, make_fabric
from qunlearn.training.evaluate import figures, load_data, predictions
from qunlearn.training.loop import cross_entropy, optimize
from qunlearn.training.resume import Keeper, fingerprint


def train(
    model: nn.Module,
    split: Split,
    *,
    part: str = "train",
    on_epoch: Callable[[dict[str, Any]], None] = lambda row: None,
    fabric: Fabric | None = None,
    title: str = "training",
    checkpoint: Path | None = None,
    **settings: Any,
) -> nn.Module:
    """Train a model on one part of a split, in place, and return it in eval mode.

    Args:
        model: Any classifier; quantized by `quantize` or in full precision.
        split: Says which samples.
        part: "train", or "retain" to leave out what is to be forgotten.
        on_epoch: Gets a row of numbers after each epoch.
        fabric: Devices and precision; one processor or GPU in 32 bits by default.
        title: What the progress bar says.
        checkpoint: A file to keep the state in now and then; where it is there, go on from it.
        **settings: Those of `OptimizerConfig`, such as `epochs=10, lr=0.05`.

    Example:
        >>> import qunlearn as qu
        >>> split = qu.Split.make(qu.load_dataset("digits", subset=100))
        >>> model = qu.ModelSpec("resnet18", classes=10, channels=1, size=8, width=0.125).build()
        >>> model = qu.train(qu.quantize(model, qu.QuantSpec()), split, epochs=1)
    """
    config = OptimizerConfig.parse(settings)
    if fabric is None:
        fabric = make_fabric(ComputeConfig())
    if part not in ("train", "retain"):
        raise unknown("part to train on", part, ("train", "retain"))
    index = split.train if part == "train" else split.retain
    check_fits(model, split.data, index, config)
    optimize(
        fabric,
        model,
        config,
        lambda wrapped: cross_entropy(fabric, wrapped, _loader(split.data, index, config, fabric)),
        prepare=lambda: calibrate_first(model, split.data, index, config),
        title=title,
        values=split.data.images[0].numel(),
        on_epoch=on_epoch,
        keeper=Keeper(checkpoint, fingerprint(model, config, index)) if checkpoint else None,
    )
    return model.eval()


def train_run(config: TrainConfig, out: Path, *, resume: bool = False) -> Run:
    """Train as the settings say and keep everything in the folder `out`.

    With `resume`, go on with the run that was begun there, if there is one.
    """
    Run.check_free(out, resume)
    if config.start_from is not None:
        digest = start_digest(config.start_from, config.start_digest)
        config = config.model_copy(update={"start_digest": digest})
    quant = quant_spec(config)
    fabric = make_fabric(config)
    data = load_data(config)
    split = Split.make(data, held_out=config.held_out, seed=config.split_seed)
    spec = model_spec(config.model, config.width, data)
    model = starting_model(config, spec, quant, split)
    # Whatever is wrong is said before writing.
    check_fits(model, data, split.train, config, config.devices)
    work = partial(
        train_into,
        model=model,
        split=split,
        header=header_of(spec, quant, split),
        settings={name: getattr(config, name) for name in OptimizerConfig.model_fields},
    )
    return made(fabric, out, config, split, resume, work)


def made(
    fabric: Fabric,
    out: Path,
    config: Config,
    split: Split,
    resume: bool,
    work: Callable[..., None],
) -> Run:
    """The run in the folder `out`, where each process does `work` unless it is complete already."""
    with Run.writing(out, config.to_dict(), split.to_json(), resume) as run:
        if not Run.is_complete(out):
            fabric.launch(partial(work, run=run))
    return run


def train_into(
    fabric: Fabric,
    *,
    run: Run,
    model: nn.Module,
    split: Split,
    header: Header,
    settings: Mapping[str, Any],
    info: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """What each process does: train (with 0 epochs: nothing); the first keeps the result."""
    if fabric.world_size > 1:
        model = copy.deepcopy(model)  # child processes get it in shared memory
    first = fabric.is_global_zero
    rows: list[dict[str, Any]] = []

    def keep(row: dict[str, Any]) -> None:
        rows.append(row)
        if first:
            run.append_history(row)

    if settings["epochs"]:
        train(
            model,
            split,
            on_epoch=keep,
            fabric=fabric,
            title=f"training {header.model.name}",
            checkpoint=run.checkpoint_path,
            **settings,
        )
    if first:
        started = time.perf_counter()
        save(run, model, header)
        logits = predictions(model, split)
        run.write_predictions(logits)
        run.write_metrics(figures(logits, split))
        training = rows[-1]["seconds"] if rows else 0.0
        seconds = {"training": training, "evaluation": time.perf_counter() - started}
        rounded = {name: round(value, 3) for name, value in seconds.items()}
        run.finish({"seconds": rounded, **info})
    leave_together(fabric)


def check_fits(
    model: nn.Module, data: ImageData, index: Tensor, config: OptimizerConfig, processes: int = 1
) -> None:
    """Raise unless the model can be trained on these samples; tries it on a copy."""
    smallest = Loader(data, index, config.batch_size, world=processes).smallest_share
    if smallest == 1 and any(isinstance(m, _BatchNorm) for m in model.modules()):
        raise UserError(
            f"A batch size of {config.batch_size} leaves batches of a single sample, on which "
            "BatchNorm cannot be trained; use a batch size (batch_size) of 4 or more."
        )
    if not any(p.requires_grad for p in model.parameters()):
        raise UserError("The model has no parameters to train; give one that has.")
    trial = copy.deepcopy(model).eval()
    try:
        with torch.inference_mode():
            logits = trial(data.normalise(data.images[index[:2]]))
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"The model cannot take images of {tuple(data.images.shape[1:])}: {reason}; use a "
            "model for this size."
        ) from None
    expected = (len(index[:2]), data.num_classes)
    if not isinstance(logits, Tensor) or tuple(logits.shape) != expected:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise UserError(
            f"The model gives {found} for {expected[0]} images of {data.num_classes} classes, not "
            f"{expected}; give it as many outputs as there are classes."
        )


def starting_model(
    config: TrainConfig, spec: ModelSpec, quant: QuantSpec, split: Split
) -> nn.Module:
    """A fresh model, or one with the weights of the run that the settings say to start from."""
    if config.start_from is None:
        return quantize(spec.build(config.seed), quant)
    start = Run.open(config.start_from)
    was = Header.read(start.model_path).quant
    if not was.full_precision and was != quant:
        raise UserError(
            f"The run {str(start.path)!r} has other bits or another quantizer, and scales that fit "
            "those alone; start from a run in full precision, or from one with the same."
        )
    if start.split != split.to_json():
        raise UserError(
            f"The run {str(start.path)!r} was trained on another split, and may have seen what is "
            "held out here; start from a run with the same data, subset and split seed."
        )
    return model_with(spec, quant, tensors_of(start), start.model_path)


def start_digest(path: Path, recorded: str) -> str:
    """The digest of the weights that are started from; raises if another one is on record."""
    start = Run.open(path)
    with as_written(start.path):
        digest = str(start.info["model_sha256"])
    if recorded not in ("", digest):
        raise UserError(
            f"The run {str(start.path)!r} has been made anew since this configuration was written; "
            "ask by flags instead."
        )
    return digest


def calibrate_first(
    model: nn.Module, data: ImageData, index: Tensor, config: OptimizerConfig
) -> None:
    """Start the quantizers from the whole first batch, however many processes share it later."""
    loader = Loader(data, index, config.batch_size, seed=config.seed, augment=config.augment)
    device = next(model.parameters()).device
    calibrate(model, loader.batch(0, 0).images.to(device))


def model_spec(name: str, width: float, data: ImageData) -> ModelSpec:
    """The model for this data set."""
    return ModelSpec(name, data.num_classes, data.channels, min(data.image_size), width)


def quant_spec(config: QuantConfig) -> QuantSpec:
    """The quantization that the settings name."""
    fields = type(config).model_fields
    for name in ("weight_bits", "act_bits", "first_last_bits"):
        bits = getattr(config, name)
        if config.quantizer == "none" and bits not in (32, fields[name].default):
            raise UserError(
                f"{name} = {bits} and quantizer = 'none', which leaves every layer in full "
                "precision, cannot both be; leave one out."
            )
    return QuantSpec(
        weights=config.weight_bits,
        activations=config.act_bits,
        quantizer=config.quantizer,
        per_channel=config.per_channel,
        first_last_bits=config.first_last_bits,
        init=config.init,
        overrides=dict.fromkeys(config.keep),
    )


def header_of(spec: ModelSpec, quant: QuantSpec, split: Split) -> Header:
    """What a checkpoint says about itself."""
    data = split.data
    return Header(spec, quant, data.name, data.classes, data.mean, data.std, split.to_json())


def _loader(data: ImageData, index: Tensor, config: OptimizerConfig, fabric: Fabric) -> Loader:
    return Loader(
        data,
        index,
        config.batch_size,
        seed=config.seed,
        augment=config.augment,
        rank=fabric.global_rank,
        world=fabric.world_size,
    )
