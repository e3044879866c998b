"""Measuring a model on every part of its split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from qunlearn.data import ImageData, Split, load_dataset
from qunlearn.metrics import accuracy
from qunlearn.store.run import Run
from qunlearn.training.checkpoint import load
from qunlearn.training.config import DataConfig
from qunlearn.training.inference import predict
from qunlearn.training.progress import Progress, downloading


def evaluate(model: nn.Module, split: Split) -> dict[str, Any]:
    """Measure a model on every part of a split, without augmentation and without moving it.

    Returns:
        For each part of `split.measured()`, `accuracy` in percent and the number of `samples`.

    Example:
        >>> import qunlearn as qu
        >>> split = qu.Split.make(qu.load_dataset("digits", subset=100))
        >>> model = qu.ModelSpec("resnet18", classes=10, channels=1, size=8, width=0.125).build()
        >>> evaluate(model, split)["test"]["samples"]
        450
    """
    parts = split.measured()
    results = {}
    with Progress("measuring", sum(map(len, parts.values()))) as progress:
        for part, index in parts.items():
            logits = predict(model, split.data, index, advance=progress.advance)
            labels = split.data.labels[index]
            results[part] = {"accuracy": accuracy(logits, labels), "samples": len(index)}
    return results


def evaluate_run(
    path: Path, *, data_dir: Path | None = None, factory: str | None = None
) -> dict[str, Any]:
    """Load a run's model and split, and measure it on the data that the run names."""
    run = Run.open(path)
    return evaluate(load(path, factory), split_of(run, data_dir))


def split_of(run: Run, data_dir: Path | None = None) -> Split:
    """A run's split, with every sample of its data set checked against the manifest."""
    moved = {"data_dir": data_dir} if data_dir else {}
    return Split.from_json(run.split, load_data(data_config(run, **moved)))


def data_config(run: Run, **moved: Any) -> DataConfig:
    """Where a run's data comes from; `moved` says what is elsewhere now."""
    config = run.config
    written = config.get("data", config)  # a run that has forgotten keeps them in a table
    values = {name: written[name] for name in DataConfig.model_fields if name in written}
    return DataConfig.parse(values | moved)


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
