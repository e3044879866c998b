"""Training an original: from settings to a run folder."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Container
from dataclasses import replace
from functools import partial
from pathlib import Path

from lightning_fabric import Fabric
from torch import nn

from qunlearn.data import ImageData, Split, sources
from qunlearn.data.manifest_key import ManifestKey
from qunlearn.errors import UserError
from qunlearn.models import ModelSpec
from qunlearn.quant import QuantSpec, quantize
from qunlearn.runs.config import QuantConfig, TrainConfig
from qunlearn.runs.data import known_as, load_data, located, moved
from qunlearn.runs.data_config import DataConfig
from qunlearn.runs.evaluate import predictions, scores_of
from qunlearn.runs.model_file import Header, model_with, save, tensors_of
from qunlearn.runs.provenance import Provenance
from qunlearn.store.history import Epoch
from qunlearn.store.info import RunInfo
from qunlearn.store.layout import SPLIT
from qunlearn.store.run import Run
from qunlearn.training.config import Config, OptimizerConfig
from qunlearn.training.devices import leave_together, make_fabric
from qunlearn.training.group import place
from qunlearn.training.train import check_fits, train


def train_run(config: TrainConfig, out: Path, *, resume: bool = False) -> Run:
    """Train as the settings say and keep everything in the folder `out`.

    With `resume`, resume the run that was begun there, if there is one.
    """
    Run.check_free(out, resume)
    if config.start_from is not None:
        recorded_start = config.provenance.start if config.provenance else None
        record = Provenance(start=start_digest(config.start_from, recorded_start))
        config = config.model_copy(update={"provenance": record})
    quant = quant_spec(config)
    fabric = make_fabric(config)
    requested = config.dataset, config.data_dir
    config, split = split_to_train(config, out, resume)
    data = split.data
    spec = model_spec(config.model, config.width, data)
    model = starting_model(config, spec, quant, split)
    # Whatever is wrong is said before writing.
    check_fits(model, data, split.train, config, config.processes)
    work = partial(
        train_into,
        model=model,
        split=split,
        header=header_of(spec, quant, split),
        optimizer=optimizer_of(config),
    )
    places = () if requested == (config.dataset, config.data_dir) else ("dataset", "data_dir")
    return made(fabric, out, config, split, resume, work, places)


def split_to_train(config: TrainConfig, out: Path, resume: bool) -> tuple[TrainConfig, Split]:
    """The split, and the settings with the place where its data is.

    What is resumed may find it at another place, if it is the same data by its digests.
    """
    if config.data is not None and not resume:
        raise UserError("--data goes with --resume; name the data with --dataset.")
    named = config.data_dir if config.dataset in sources else Path(config.dataset)
    lost = resume and named is not None and not named.exists()
    if (lost or config.data is not None) and (out / SPLIT).is_file():
        place, split = located(Run(out), config, config.data)
        return settled(config, place), split
    if config.data is not None:
        config = settled(config, moved(config, config.data))
    data = known_as(load_data(config), config, ManifestKey.read(out))
    split = Split.make(data, held_out=config.held_out, seed=config.split_seed)
    return config, with_key(split, out)


def with_key(split: Split, out: Path) -> Split:
    """The split with the key of its data set, or the one that a run was begun with."""
    return split.with_key(ManifestKey.read(out) or ManifestKey.of_data(split.data.name))


def settled(config: TrainConfig, place: DataConfig) -> TrainConfig:
    """The settings with the data at another place."""
    return config.model_copy(
        update={"dataset": place.dataset, "data_dir": place.data_dir, "data": None}
    )


def made(
    fabric: Fabric,
    out: Path,
    config: Config,
    split: Split,
    resume: bool,
    work: Callable[..., None],
    places: Container[str] = (),
) -> Run:
    """The run in the folder `out`, where each process does `work` unless it is complete already."""
    place(split.data)
    with Run.writing(out, config.to_dict(), split.to_json(), resume, places) as run:
        if not Run.is_complete(out):
            keep_key(split, out)
            fabric.launch(partial(work, run=run))
    return run


def keep_key(split: Split, out: Path) -> None:
    """Save the key of a split beside its manifest, if it has one."""
    if split.key is not None and ManifestKey.read(out) != split.key:
        split.key.write(out)


def train_into(
    fabric: Fabric,
    *,
    run: Run,
    model: nn.Module,
    split: Split,
    header: Header,
    optimizer: OptimizerConfig | None,
    info: RunInfo | None = None,
) -> None:
    """What each process does: train, unless there is no `optimizer`; the first saves the result."""
    if fabric.world_size > 1:
        model = copy.deepcopy(model)  # child processes get it in shared memory
    first = fabric.is_global_zero
    rows: list[Epoch] = []

    def keep(row: Epoch) -> None:
        rows.append(row)
        if first:
            run.append_history(row)

    if optimizer is not None:
        train(
            model,
            split,
            on_epoch=keep,
            fabric=fabric,
            title=f"training {header.model.name}",
            checkpoint=run.checkpoint_path,
            **dict(optimizer),
        )
    if first:
        started = time.perf_counter()
        save(run, model, header)
        logits = predictions(model, split)
        run.write_predictions(logits)
        run.write_metrics(scores_of(logits, split).to_json())
        training = rows[-1].elapsed if rows else 0.0
        seconds = {"training": training, "evaluation": time.perf_counter() - started}
        rounded = {name: round(value, 3) for name, value in seconds.items()}
        run.finish(replace(info or RunInfo(), seconds=rounded))
    leave_together(fabric)


def optimizer_of(config: OptimizerConfig) -> OptimizerConfig:
    """The settings of the training alone."""
    names = OptimizerConfig.model_fields
    return OptimizerConfig.model_construct(**{name: getattr(config, name) for name in names})


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
    if start.split != split.with_key(ManifestKey.read(start.path)).to_json():
        raise UserError(
            f"The run {str(start.path)!r} was trained on another split, and may have seen what is "
            "held out here; start from a run with the same data, subset and split seed."
        )
    return model_with(spec, quant, tensors_of(start), start.model_path)


def start_digest(path: Path, recorded: str | None) -> str:
    """The digest of the weights that are started from; raises if another one is on record."""
    start = Run.open(path)
    digest = start.info.model_sha256
    if recorded not in (None, digest):
        raise UserError(
            f"The run {str(start.path)!r} has been made anew since this configuration was written; "
            "ask by flags instead."
        )
    return digest


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
