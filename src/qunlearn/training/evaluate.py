"""Measuring a model on every part of its split."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qunlearn.data import ImageData, Split, load_dataset, sources
from qunlearn.errors import UserError
from qunlearn.metrics import compare, measure, score
from qunlearn.store.files import as_written
from qunlearn.store.run import Run
from qunlearn.training.checkpoint import load
from qunlearn.training.config import DataConfig
from qunlearn.training.inference import predict
from qunlearn.training.progress import Progress, downloading

Logits = Mapping[str, Tensor]


def evaluate(
    model: nn.Module,
    split: Split,
    reference: nn.Module | None = None,
    *,
    seed: int = 0,
    exact: bool = False,
    vector: bool = False,
) -> dict[str, Any]:
    """Measure a model on every part of a split, without augmentation and without moving it.

    One forward pass for each sample serves all figures.

    Args:
        model: The model.
        split: Says which samples, and which of them were to be forgotten.
        reference: A model retrained without the forgotten samples, to compare with.
        seed: Which retained and test samples the membership attacks learn from.
        exact: Attack with scikit-learn's SVC rather than the faster solver of the same problem.
        vector: Also attack by the whole vector of probabilities, which takes some seconds.

    Returns:
        `parts`: for each part of `split.measured()` the `accuracy` in percent, the number of
        `samples`, the mean `entropy` and `confidence` in the truth. Where something was to be
        forgotten, also FA, RA, TA and MIA in percent and the further `attacks`; and with a
        reference AG, the `gaps` it is the mean of, and for each part the `agreement` and the
        Jensen-Shannon `divergence`.

    Example:
        >>> import qunlearn as qu
        >>> split = qu.Split.random(qu.load_dataset("digits", subset=100))
        >>> model = qu.ModelSpec("resnet18", classes=10, channels=1, size=8, width=0.125).build()
        >>> scores = evaluate(model, split, reference=model)
        >>> scores["parts"]["test"]["samples"], scores["AG"]
        (450, 0.0)
    """
    logits = predictions(model, split)
    others = None if reference is None else predictions(reference, split)
    return figures(logits, split, others, seed=seed, exact=exact, vector=vector)


def labels_of(split: Split) -> dict[str, Tensor]:
    """The true labels of every part that is measured."""
    return {part: split.data.labels[index] for part, index in split.measured().items()}


def predictions(model: nn.Module, split: Split) -> dict[str, Tensor]:
    """The model's outputs on every part that is measured."""
    parts = split.measured()
    with Progress("measuring", sum(map(len, parts.values()))) as progress:
        return {
            part: predict(model, split.data, index, advance=progress.advance)
            for part, index in parts.items()
        }


def figures(
    logits: Logits, split: Split, reference: Logits | None = None, **attack: Any
) -> dict[str, Any]:
    """Every figure that outputs allow, and those of a retrained model; see `evaluate`."""
    labels = labels_of(split)
    result: dict[str, Any] = {"parts": measure(logits, labels)}
    if reference is not None and "forget" not in labels:
        raise UserError("Nothing is asked to be forgotten; leave the reference out.")
    if {"forget", "retain", "test"} <= labels.keys():
        result = {**score(logits, labels, **attack), **result}
        if reference is not None:
            against = score(reference, labels, **attack)
            compared = compare(result, against, logits, reference)
            for part, alike in compared.pop("parts").items():
                result["parts"][part] |= alike
            result |= {**compared, "reference": against}
    return result


def evaluate_run(
    path: Path,
    *,
    data_dir: Path | None = None,
    factory: str | None = None,
    reference: Path | None = None,
    model: nn.Module | None = None,
    **attack: Any,
) -> dict[str, Any]:
    """Load a run's model and split, and measure it on the data that the run names.

    With `model`, measure that instead: the run's own in another form.
    """
    run = Run.open(path)
    split = split_of(run, data_dir)
    if reference is not None:
        check_reference(run, split, Run.open(reference))
    other = None if reference is None else load(reference, factory)
    model = load(path, factory) if model is None else model
    return evaluate(model, split, other, **attack)


def check_reference(run: Run, split: Split, reference: Run) -> None:
    """Raise unless the reference is a Retrain without the samples that the run has forgotten."""
    if not split.requests:
        raise UserError(
            f"The run {str(run.path)!r} has forgotten nothing, so that there is nothing to compare "
            "with a Retrain; leave --reference out."
        )
    check_made_by_retrain(reference, "reference")
    check_present(run, split)
    check_retrained(reference, split, "reference")


def check_made_by_retrain(run: Run, called: str) -> None:
    """Raise unless a run was made by Retrain."""
    if run.info.get("method") != "retrain":
        raise UserError(
            f"The {called} {str(run.path)!r} was not made by Retrain; name a run made by "
            "`qunlearn forget --method retrain`."
        )


def check_retrained(run: Run, split: Split, called: str) -> None:
    """Raise unless a Retrain was trained on all that a split retains, and on nothing else."""
    theirs = Split.from_json(run.split, split.data)
    if not torch.equal(theirs.forgotten, split.forgotten):
        raise UserError(
            f"The {called} {str(run.path)!r} was retrained without other samples than those that "
            "are forgotten here; name the Retrain of the same request."
        )
    if not torch.equal(theirs.retain.sort().values, split.retain.sort().values):
        raise UserError(
            f"The {called} {str(run.path)!r} was trained on other samples than those that are "
            "retained here; name a Retrain of the same data, subset and split seed."
        )


def check_present(run: Run, split: Split) -> None:
    """Raise if samples that were to be forgotten are no longer there to be measured on."""
    if not split.erased.keys().isdisjoint(split.requests[-1].ids):
        raise UserError(
            f"Samples that {str(run.path)!r} has forgotten are erased from the data, and can no "
            "longer be measured on; metrics.json has what was measured while they were there."
        )


def check_test(split: Split) -> None:
    """Raise if there is no test part, by which TA and MIA are measured."""
    if "test" not in split.measured():
        raise UserError(
            f"The data set {split.data.name!r} has no test samples of the classes that are "
            "retained, and TA and MIA are measured on them; add some (docs/data.md says where)."
        )


def measured_before(run: Run, model: nn.Module, then: Split, split: Split) -> dict[str, Any]:
    """The figures of a run's model on a later split, from the outputs that the run has kept.

    They are computed anew where they are not kept, or samples were erased since.
    """
    logits = kept_outputs(run, then, split)
    return figures(predictions(model, split) if logits is None else logits, split)


def kept_outputs(run: Run, own: Split, split: Split) -> dict[str, Tensor] | None:
    """What a run's model answers on the parts of another split; None if that was not all kept.

    Args:
        run: The run.
        own: Its own split, of the same data.
        split: Whose parts are asked about; the same samples may be in other parts there.
    """
    kept, parts = run.predictions, own.measured()
    if any(part not in kept or len(kept[part]) != len(index) for part, index in parts.items()):
        return None
    table = torch.full((len(split.data), split.data.num_classes), torch.nan)
    with as_written(run.path):
        for part, index in parts.items():
            table[index] = kept[part].float()
    logits = {part: table[index] for part, index in split.measured().items()}
    return None if any(rows.isnan().any() for rows in logits.values()) else logits


def origin_of(run: Run) -> Run | None:
    """The run that forgot, wherever it is seen from; its weights' checksum says that it is it."""
    named = Path(run.config["run"])
    for base in (Path(), *run.path.resolve().parents):
        path = base / named
        if Run.is_complete(path):
            origin = Run.open(path)
            if origin.info.get("model_sha256") == run.info["origin"]:
                return origin
    return None


def split_of(run: Run, data_dir: Path | None = None) -> Split:
    """A run's split, with every sample of its data set checked against the manifest."""
    moved = {"data_dir": data_dir} if data_dir else {}
    return Split.from_json(run.split, load_data(data_config(run, **moved)))


def data_config(run: Run, **moved: Any) -> DataConfig:
    """Where a run's data comes from; `moved` says what is elsewhere now."""
    config = run.config
    with as_written(run.path):
        written = config.get("data", config)  # a run that has forgotten keeps them in a table
        values = {name: written[name] for name in DataConfig.model_fields if name in written}
        for name in values.keys() & {"dataset", "data_dir", "metadata"} - moved.keys():
            values[name] = seen_from(run, values[name])
    return DataConfig.parse(values | moved)


def seen_from(run: Run, named: str) -> str:
    """A path that a run names: as it stands, or else from a folder above the run."""
    path = Path(named)
    if named in sources or path.is_absolute() or path.exists():
        return named
    above = (base / path for base in run.path.resolve().parents)
    return next((str(found) for found in above if found.exists()), named)


def load_data(config: DataConfig) -> ImageData:
    """The data set that the settings name."""
    with downloading() as progress:
        return load_dataset(
            config.dataset,
            data_dir=config.data_dir,
            subset=config.subset,
            subset_seed=config.split_seed,
            download=config.download,
            metadata=config.metadata,
            cache_dir=config.cache_dir,
            image_size=config.image_size,
            progress=progress,
        )
