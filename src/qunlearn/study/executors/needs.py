"""What a job reads: found on a node by its digest, or sent there once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from qunlearn.data.sources.npz import to_arrays
from qunlearn.errors import UserError
from qunlearn.runs.data import data_config, load_data, located
from qunlearn.runs.data_config import DataConfig
from qunlearn.runs.request import ForgetConfig
from qunlearn.store.arrays import npz_bytes
from qunlearn.store.files import sha256
from qunlearn.store.parcel import MOST_BYTES, Files, pack_file, pack_run
from qunlearn.store.run import Run

NODE_DATA = "QUNLEARN_DATA"
"""The environment variable with which a node says where its copy of the data is."""

DATA_FILE = "data.npz"


@dataclass(frozen=True)
class Need:
    """Something that a job reads.

    Attributes:
        kind: A run folder, a file, or the data set of the run.
        field: The setting that names it.
        path: Where it is on the driver; for data None, if the run's record says so.
        digest: Of the weights; of the file; of the manifest, which has every sample's hash.
        kept_as: The digest that names the folder on a node, if several jobs read the same and say
            so by different ones.
    """

    kind: Literal["run", "file", "data"]
    field: str
    path: Path | None
    digest: str
    kept_as: str = ""

    @property
    def folder(self) -> str:
        """The name of the folder that a node keeps it in."""
        return f"{self.field}-{(self.kept_as or self.digest)[:32]}"


def run_need(field: str, path: Path) -> Need:
    """A run, by its weights."""
    return Need("run", field, path, Run.open(path).info.model_sha256)


def data_need(run: Path, path: Path | None, original: Path | None = None) -> Need:
    """The data of a run, which runs of the same `original` share."""
    kept_as = "" if original is None else _manifest(original)
    return Need("data", "data_path", path, _manifest(run), kept_as)


def needs_of(config: ForgetConfig, original: Path | None = None) -> tuple[Need, ...]:
    """What a request with these settings reads from the driver's disk."""
    origin = Run.open(config.run)
    needs = [run_need("run", config.run)]
    if config.start_from is not None:
        needs.append(run_need("start_from", config.start_from))
    if config.ids is not None:
        needs.append(Need("file", "ids", config.ids, sha256(config.ids)))
    metadata = data_config(origin, **config.changed).metadata
    if config.where is not None and metadata is not None:
        needs.append(Need("file", "metadata", metadata, sha256(metadata)))
    return (*needs, data_need(config.run, config.data_path, original))


def _manifest(run: Path) -> str:
    return hashlib.sha256(Run.open(run).split.encode()).hexdigest()


def recorded_data(config: ForgetConfig) -> DataConfig:
    """Where the data is, as a run that is made on this machine would record it."""
    origin = Run.open(config.run)
    return located(origin, data_config(origin, **config.changed), config.data_path)[0]


def pack(need: Need, place: DataConfig) -> Files:
    """The content of what a node lacks, of bounded size; data is at its `place`."""
    if need.kind == "run":
        assert need.path is not None
        return pack_run(need.path)
    if need.kind == "file":
        assert need.path is not None
        return {need.path.name: pack_file(need.path)}
    data = load_data(place.model_copy(update={"metadata": None}))
    if data.images.nbytes > MOST_BYTES:
        raise UserError(
            f"The data set {place.dataset!r} has {data.images.nbytes:,} bytes, more than the "
            f"{MOST_BYTES:,} that are sent to a node; mount it there, and say where with --data or "
            f"the node's variable {NODE_DATA}."
        )
    return {DATA_FILE: npz_bytes(to_arrays(data))}


def find(need: Need, origin: Path, store: Path) -> Path | None:
    """Where something is on this node (None: where the run's record says), or a `LookupError`.

    Args:
        need: What is looked for.
        origin: Where the run that forgets is on this node.
        store: The folder of what was sent to this node.
    """
    for path in _candidates(need, store):
        if _matches(need, path, origin):
            return path
    raise LookupError(need.field)


def _candidates(need: Need, store: Path) -> Iterator[Path | None]:
    yield need.path
    if need.kind == "data" and os.environ.get(NODE_DATA):
        yield Path(os.environ[NODE_DATA])
    folder = store / need.folder
    if folder.is_dir():
        inside = folder if need.kind == "run" else next(iter(sorted(folder.iterdir())), None)
        if inside is not None:
            yield inside


def _matches(need: Need, path: Path | None, origin: Path) -> bool:
    try:
        if need.kind == "data":
            return _is_data(need.digest, path, origin)
        assert path is not None
        if need.kind == "run":
            return Run.open(path).info.model_sha256 == need.digest
        return sha256(path) == need.digest
    except UserError:
        return False


@cache
def _is_data(digest: str, path: Path | None, origin: Path) -> bool:
    """Whether data are a run's, sample by sample; looked at once in each process."""
    run = Run.open(origin)
    try:
        located(run, data_config(run), path)
    except UserError:
        return False
    return hashlib.sha256(run.split.encode()).hexdigest() == digest
