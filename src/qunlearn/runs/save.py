"""A run folder of what was made in Python: the network, its split, and where the data are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor, nn

from qunlearn.data import ImageData, Request, Split, load_dataset
from qunlearn.data.manifest_key import ManifestKey
from qunlearn.data.sources.npz import to_arrays
from qunlearn.errors import UserError
from qunlearn.metrics import Scores
from qunlearn.models import ModelSpec
from qunlearn.quant import QuantSpec, quantize
from qunlearn.quant.layers import QuantLayer
from qunlearn.runs.data import DATA, IN_PYTHON, place_of
from qunlearn.runs.data_config import DataConfig
from qunlearn.runs.model_file import OWN, load_weights, save, tensors_of
from qunlearn.runs.plan import request_digest
from qunlearn.runs.provenance import TABLE, Provenance, Recipe
from qunlearn.runs.recipe import recipe_of
from qunlearn.runs.train import header_of, keep_key, with_key
from qunlearn.store.arrays import write_arrays
from qunlearn.store.history import Epoch
from qunlearn.store.info import RunInfo
from qunlearn.store.run import Run
from qunlearn.training.checkpoint import digest as digest_of


@dataclass(frozen=True)
class Made:
    """What was made: a network, on a split, and what is known about it.

    Attributes:
        model: The network.
        split: What it was made on.
        outputs: Its outputs on every part that is measured.
        scores: What is measured on it.
        history: A row for each epoch.
        info: How it came about.
    """

    model: nn.Module
    split: Split
    outputs: Mapping[str, Tensor]
    scores: Scores
    history: Sequence[Epoch]
    info: RunInfo


def save_original(
    made: Made,
    path: Path,
    training: Mapping[str, object],
    *,
    from_scratch: bool,
    factory: str | None = None,
    data: bool | str | Path | None = None,
) -> Run:
    """Save a network that nothing was asked to be forgotten of."""
    recipe_settings = {name: value for name, value in training.items() if name != "seed"}
    record = Provenance(recipe=Recipe(training=recipe_settings, from_scratch=from_scratch))
    settings = {**training, **data_settings(made.split, data), TABLE: record.to_dict()}
    return _save(made, path, settings, factory, data)


def save_forgotten(
    made: Made,
    path: Path,
    method: str,
    settings: Mapping[str, object],
    original: nn.Module,
    *,
    origin: Path | None = None,
    factory: str | None = None,
    data: bool | str | Path | None = None,
) -> Run:
    """Save a network that has forgotten; `origin` is the run of the `original` it was made from."""
    split, data_config = made.split, DataConfig.parse(data_settings(made.split, data))
    recipe, digest = Recipe(), ""
    if origin is not None:
        run = Run.open(origin)
        _check_origin(run, original, split)
        made = replace(made, split=split.with_key(ManifestKey.read(origin)))
        recipe, digest = recipe_of(run), run.info.model_sha256
        if data_config.dataset == IN_PYTHON:
            data_config = place_of(run)
    config = {
        "run": IN_PYTHON if origin is None else str(origin),
        "method": method,
        **_request_settings(split.requests[-1]),
        "settings": dict(settings),
        TABLE: Provenance(
            origin=digest or None, request=request_digest(split), data=data_config, recipe=recipe
        ).to_dict(),
    }
    return _save(replace(made, info=replace(made.info, origin=digest)), path, config, factory, data)


def _save(
    made: Made,
    path: Path,
    config: Mapping[str, object],
    factory: str | None,
    data: bool | str | Path | None,
) -> Run:
    Run.check_free(path)
    split = made.split if made.split.key is not None else with_key(made.split, path)
    header = header_of(network_of(made.model, factory, split.data), quant_of(made.model), split)
    named = {"model": header.model.name} if header.model.is_factory else {}
    if data and data is not True:
        _write_data(Path(data), split)
    with Run.writing(path, {**named, **config}, header.split) as run:
        keep_key(split, path)
        if data is True:
            write_arrays(path / DATA, to_arrays(split.data))
        for row in made.history:
            run.append_history(row)
        save(run, made.model, header)
        run.write_predictions(made.outputs)
        run.write_metrics(made.scores.to_json())
        run.finish(replace(made.info, made_in="Python"))
    return run


def data_settings(split: Split, data: bool | str | Path | None) -> dict[str, object]:
    """Where commands will find the data: in the folder, in a file, or where they came from."""
    if data is True:
        return {"dataset": DATA}
    if data:
        if Path(data).suffix.lower() != ".npz":
            raise UserError(f"data = {str(data)!r} is no .npz file; name one, or give data=True.")
        return {"dataset": str(data)}
    source = split.data.source or {"dataset": IN_PYTHON}
    return {k: str(v) if isinstance(v, Path) else v for k, v in source.items()}


def _write_data(path: Path, split: Split) -> None:
    """Write the data set to a file; one that is there must hold the same samples."""
    if not path.exists():
        write_arrays(path, to_arrays(split.data))
        return
    try:
        Split.from_json(split.to_json(), load_dataset(str(path)), split.key)
    except UserError as error:
        raise UserError(
            f"The file {str(path)!r} holds other data ({error}); name another one with data=."
        ) from None


def quant_of(model: nn.Module) -> QuantSpec:
    """How a network was quantized."""
    spec = vars(model).get("quant_spec")
    if isinstance(spec, QuantSpec):
        return spec
    if any(isinstance(module, QuantLayer) for module in model.modules()):
        raise UserError(
            "Only a part of the network was quantized, so that it is not on record how; quantize "
            "the whole, with overrides={'name': None} for what is to be left alone."
        )
    return QuantSpec(quantizer="none")


def network_of(model: nn.Module, factory: str | None, data: ImageData) -> ModelSpec:
    """How a network is built again: by a factory, as qunlearn's own, or not on record (`OWN`)."""
    shape = data.num_classes, data.channels, min(data.image_size)
    if factory is not None:
        if ":" not in factory:
            raise UserError(f"factory = {factory!r} is invalid: give 'package.module:name'.")
        spec = ModelSpec(factory, *shape)
        misfit = _misfit(spec, model)
        if misfit:
            raise UserError(f"The factory {factory!r} builds another network: {misfit}")
        return spec
    recorded = vars(model).get("model_spec")
    if isinstance(recorded, ModelSpec) and not _misfit(recorded, model):
        return recorded
    return ModelSpec(OWN, *shape)


def _misfit(spec: ModelSpec, model: nn.Module) -> str:
    """Why a spec does not build this network; nothing if it does."""
    try:
        load_weights(quantize(spec.build(), quant_of(model)), model.state_dict(), Path(spec.name))
    except UserError as error:
        return str(error)
    return ""


def _check_origin(run: Run, original: nn.Module, split: Split) -> None:
    """Raise unless a run holds the network that forgot, before it did, on the same split."""
    if digest_of(tensors_of(run)) != digest_of(original.state_dict()):
        raise UserError(
            f"The run {str(run.path)!r} holds another network than the one that was given to "
            "forget; name that one's run, or leave origin= out."
        )
    before = Split.from_json(run.split, split.data, ManifestKey.read(run.path))
    split = split.with_key(before.key)
    same_earlier = before.requests == split.requests[:-1]
    if not same_earlier or before.repeat(split.requests[-1]).digest != split.digest:
        raise UserError(
            f"The run {str(run.path)!r} has another split, or other requests, than the one that "
            "forgot; save the original with the split that the request was added to."
        )


def _request_settings(request: Request) -> dict[str, object]:
    """The request as the command line's settings put it."""
    detail = request.detail
    if request.kind == "random":
        return {"random": detail["fraction"], "forget_seed": detail["seed"]}
    if request.kind == "class":
        return {"classes": list(detail["classes"])}
    return {}  # the samples are in the split
