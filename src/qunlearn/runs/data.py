"""The data and the split of a run, wherever they are now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from qunlearn.data import ImageData, Split, load_dataset, manifest, sources
from qunlearn.data.manifest_key import ManifestKey
from qunlearn.errors import UserError
from qunlearn.runs.data_config import DataConfig
from qunlearn.runs.nearby import nearby
from qunlearn.runs.provenance import provenance_of
from qunlearn.store.run import Run
from qunlearn.training.progress import downloading

T = TypeVar("T")

DATA = "data.npz"
"""A run's own copy of its data, if it was saved from Python with them."""

IN_PYTHON = "in Python"
"""What stands for the data set of a run that was saved from Python without its data."""


def split_of(run: Run, data: Path | None = None) -> Split:
    """A run's split, with every sample that is used checked against the manifest.

    Args:
        run: The run.
        data: Where its data is now; by default where the run says, or beside the run if both were
            moved together. Whatever is found there must be the same data, sample by sample.
    """
    return located(run, data_config(run), data)[1]


def located(
    run: Run, config: DataConfig, data: Path | None = None, *, columns: bool = False
) -> tuple[DataConfig, Split]:
    """Where a run's data is now, and its split; `config` says where it was.

    With `columns` the metadata is joined, which only rules need.
    """
    config = _with_metadata_path(run, config)
    return _first_fit(run, config, data, lambda place: read_split(run, place, columns))


def read_split(run: Run, config: DataConfig, columns: bool = False) -> Split:
    """The split of a run, with the data that the settings name."""
    key = ManifestKey.read(run.path)
    data = _load_for(manifest.parse(run.split), config, columns, key)
    return Split.from_json(run.split, data, key)


def some_unseen(run: Run, most: int, data: Path | None = None) -> Split:
    """A split of nothing but test samples, for what needs a few real samples and no more.

    At most so many, evenly over the test part (where there is none, the held-out part); of the
    samples that are there each that is taken is checked against the manifest, and all others may
    be missing.
    """
    recorded = manifest.parse(run.split)

    def read(config: DataConfig) -> Split:
        key = ManifestKey.read(run.path)
        data = _load_for(recorded, config, key=key)
        aligned = manifest.align(recorded, data)
        unseen = [
            {name: digest for name, digest in part.items() if name not in recorded.retired}
            for part in (recorded.test, recorded.held_out)
        ]
        part = next((part for part in unseen if part), {})
        rows = aligned.index_of(name for name in part if name in aligned).sort().values
        if not len(rows):
            raise manifest.another(recorded, data.name, "no test sample is there")
        # Evenly spaced: some sources are sorted by class.
        rows = rows[torch.linspace(0, len(rows) - 1, min(most, len(rows))).round().long()]
        names = [aligned.ids[row] for row in rows.tolist()]
        chosen = {name: part[name] for name in names}
        (test,) = manifest.find(recorded, aligned, chosen, called=data.name, key=key)
        return Split(aligned, recorded.seed, (), test[:0], test[:0], test)

    return _first_fit(run, data_config(run), data, read)[1]


def data_config(run: Run, **changed: Any) -> DataConfig:
    """Where a run's data was when the run was made; `changed` settings win.

    Nothing is fetched, and no image cached in a folder of its choice, whatever the run says: those
    have to be asked for. What was once fetched to such a folder is read there.
    """
    record = provenance_of(run)
    if record.data is not None:  # a run that has forgotten
        written = record.data.to_dict()
    else:
        config = run.config
        written = {name: config[name] for name in DataConfig.model_fields if name in config}
    values = DataConfig.parse({**written, **changed, "download": False})
    cache = values.cache_dir
    if cache is not None and values.data_dir is None and values.dataset in sources:
        fetched = cache / "data" / values.dataset
        values = values.model_copy(update={"data_dir": fetched} if fetched.is_dir() else {})
    return values.model_copy(update={"cache_dir": None})


def moved(config: DataConfig, data: Path) -> DataConfig:
    """The settings with the data at another place, given as a folder or an .npz file."""
    if not data.exists():
        raise UserError(f"There is no data at {str(data)!r}; check --data.")
    in_folder = config.dataset in sources and data.suffix.lower() != ".npz"
    place = {"data_dir": data} if in_folder else {"dataset": str(data), "data_dir": None}
    return config.model_copy(update=place)


def places(run: Run, config: DataConfig) -> Iterator[DataConfig]:
    """Where the data may be: as the settings say, or seen from the folders above the run."""
    name = "dataset" if config.dataset not in sources else "data_dir"
    recorded = getattr(config, name)
    if recorded in (None, IN_PYTHON):  # embedded, in the cache, or nowhere
        yield config
        return
    if config.dataset == DATA and (run.path / DATA).is_file():
        yield config.model_copy(update={name: str(run.path / DATA)})
    for place in nearby(run.path, recorded):
        yield config.model_copy(update={name: place if name == "data_dir" else str(place)})


def place_of(run: Run, **changed: Any) -> DataConfig:
    """Where a run's data seems to be; what is there is checked when it is used."""
    config = _with_metadata_path(run, data_config(run, **changed))
    return next(places(run, config), config)


def _with_metadata_path(run: Run, config: DataConfig) -> DataConfig:
    if config.metadata is None:
        return config
    path = next(nearby(run.path, config.metadata), config.metadata)
    return config.model_copy(update={"metadata": path})


def _first_fit(
    run: Run, config: DataConfig, data: Path | None, read: Callable[[DataConfig], T]
) -> tuple[DataConfig, T]:
    """The first place whose data can be read as the run's, and what was read there."""
    first: UserError | None = None
    for place in [moved(config, data)] if data is not None else places(run, config):
        try:
            return place, read(place)
        except UserError as error:
            first = first or error
    if first is not None:
        raise first
    raise UserError(
        f"The data of {str(run.path)!r} is not at {str(config.data_dir or config.dataset)!r} any "
        "more; say with --data PATH where it is now."
    )


def known_as(data: ImageData, config: DataConfig, key: ManifestKey | None) -> ImageData:
    """The data with pseudonyms for ids, if that is asked for."""
    if not config.pseudonymise:
        return data
    return data.pseudonymised((key or ManifestKey.of_data(data.name)).alias)


@dataclass(frozen=True)
class _Pseudonyms:
    """Ids by their pseudonyms."""

    names: frozenset[str]
    key: ManifestKey

    def __contains__(self, name: object) -> bool:
        return name in self.names or self.key.alias(str(name)) in self.names


def _load_for(
    recorded: manifest.Manifest,
    config: DataConfig,
    columns: bool = False,
    key: ManifestKey | None = None,
) -> ImageData:
    """The data of a manifest, of which samples may be erased since."""
    plain = config.model_copy(update={"metadata": None})
    try:
        # A subset that is drawn again holds what is left of it: each sample keeps its own place.
        data = load_data(plain)
    except UserError:
        if config.subset is None:
            raise
        data = load_data(plain.model_copy(update={"subset": None}))  # fewer are left than that
    if columns and config.metadata is not None:
        removed = recorded.forgotten | recorded.retired
        hidden = config.pseudonymise and key is not None
        names = _Pseudonyms(removed, key) if hidden and key else removed
        data = data.join(config.metadata, names, recorded.unnamed)
    return known_as(data, config, key)


def load_data(config: DataConfig) -> ImageData:
    """The data set that the settings name."""
    if config.dataset == IN_PYTHON:
        raise UserError(
            "The run was saved from Python without its data, which this needs; name it with --data "
            "PATH, or save it again with data=True, or with data='FILE.npz'."
        )
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
