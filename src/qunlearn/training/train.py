"""Training an original: from settings to a run folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lightning_fabric import Fabric
from torch import Tensor, nn

from qunlearn.data import ImageData, Loader, Split
from qunlearn.errors import UserError
from qunlearn.models import ModelSpec
from qunlearn.quant import QuantSpec, calibrate, quantize
from qunlearn.store.run import Run
from qunlearn.store.weights import read_tensors
from qunlearn.training.checkpoint import Header, model_with, save
from qunlearn.training.config import (
    ComputeConfig,
    OptimizerConfig,
    QuantConfig,
    TrainConfig,
)
from qunlearn.training.devices import make_fabric
from qunlearn.training.evaluate import evaluate_parts, load_data
from qunlearn.training.loop import cross_entropy, optimize


def train(
    model: nn.Module,
    split: Split,
    *,
    part: str = "train",
    on_epoch: Callable[[dict[str, Any]], None] = lambda row: None,
    fabric: Fabric | None = None,
    title: str = "training",
    **settings: Any,
) -> nn.Module:
    """Train a model on one part of a split, in place, and return it.

    Args:
        model: Any classifier; quantized by `quantize` or in full precision.
        split: Says which samples.
        part: "train", or "retain" to leave out what is to be forgotten.
        on_epoch: Gets a row of numbers after each epoch.
        fabric: Devices and precision; one processor or GPU in 32 bits by default.
        title: What the progress bar says.
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
    index: Tensor = getattr(split, part)
    optimize(
        fabric,
        model,
        config,
        lambda wrapped: cross_entropy(fabric, wrapped, _loader(split.data, index, config, fabric)),
        prepare=lambda: calibrate_first(model, split.data, index, config),
        title=title,
        on_epoch=on_epoch,
    )
    return model


def train_run(config: TrainConfig, out: Path) -> Run:
    """Train as the settings say and keep everything in the folder `out`."""
    Run.check_free(out)
    quant = quant_spec(config)
    fabric = make_fabric(config)
    data = load_data(config)
    split = Split.make(data, held_out=config.held_out, seed=config.split_seed)
    spec = model_spec(config.model, config.width, data)
    starting_model(config, spec, quant, split)  # whatever is wrong is said before writing
    run = Run.create(out)
    run.write_config(config.to_dict())
    run.write_split(split.to_json())
    # A partial, because Fabric looks into arguments and stumbles over frozen dataclasses.
    fabric.launch(
        partial(_train_worker, config=config, run=run, split=split, spec=spec, quant=quant)
    )
    return run


def _train_worker(
    fabric: Fabric, config: TrainConfig, run: Run, split: Split, spec: ModelSpec, quant: QuantSpec
) -> None:
    model = starting_model(config, spec, quant, split)
    first = fabric.is_global_zero
    settings = {name: getattr(config, name) for name in OptimizerConfig.model_fields}
    started = time.perf_counter()
    train(
        model,
        split,
        on_epoch=run.append_history if first else lambda row: None,
        fabric=fabric,
        title=f"training {spec.name}",
        **settings,
    )
    seconds = time.perf_counter() - started
    if first:
        finish(run, model, split, header_of(spec, quant, split), {"training": seconds})


def starting_model(
    config: TrainConfig, spec: ModelSpec, quant: QuantSpec, split: Split
) -> nn.Module:
    """A fresh model, or one with the weights of the run that the settings say to start from."""
    if config.start_from is None:
        return quantize(spec.build(config.seed), quant)
    start = Run.open(config.start_from)
    if start.split != split.to_json():
        raise UserError(
            f"The run {str(start.path)!r} was trained on another split, and may have seen what is "
            "held out here; start from a run with the same data, subset and split seed."
        )
    return model_with(spec, quant, read_tensors(start.model_path), start.model_path)


def finish(
    run: Run,
    model: nn.Module,
    split: Split,
    header: Header,
    seconds: dict[str, float],
    info: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Keep the model, measure it on every part, and close the run."""
    save(run, model, header)
    started = time.perf_counter()
    run.write_metrics(evaluate_parts(model, split))
    seconds = {**seconds, "evaluation": time.perf_counter() - started}
    rounded = {name: round(value, 3) for name, value in seconds.items()}
    run.finish({"seconds": rounded, **info})


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
    return QuantSpec(
        weights=config.weight_bits,
        activations=config.act_bits,
        quantizer=config.quantizer,
        per_channel=config.per_channel,
        first_last_bits=config.first_last_bits,
        init=config.init,
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
