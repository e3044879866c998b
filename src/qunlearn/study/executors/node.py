"""What a machine of a cluster does with a cell: check itself, find what it needs, make the cell."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

from qunlearn.errors import Failure, UserError
from qunlearn.runs.data_config import DataConfig
from qunlearn.runs.forget import execute
from qunlearn.runs.plan import plan_forgetting
from qunlearn.runs.provenance import TABLE
from qunlearn.store.info import made_beside
from qunlearn.store.lock import Locked
from qunlearn.store.parcel import Files, delete_private, pack_run, unpack
from qunlearn.store.place import set_named
from qunlearn.store.private import private_folder
from qunlearn.store.run import Run
from qunlearn.store.start import AnotherRun
from qunlearn.study.executors.needs import Need, find

if TYPE_CHECKING:
    from qunlearn.study.cells import Cell

PATIENCE = 600.0
"""Seconds to wait for a folder that another process writes, such as a worker that is dying."""


@dataclass(frozen=True)
class Order:
    """A cell for a node, with what the node has to know about the driver.

    Attributes:
        cell: The cell.
        folders: The folders that the user named; nothing below them is written through a link.
        versions: The software of the driver, which the node's must equal.
        beside: How many cells the node makes at a time.
        beacon: A file of the driver's; a node that sees it shares the driver's folder.
        needs: What the cell reads.
        data: Where the data is on the driver, as the cell's record says it.
        study: The name of the folder for what is sent to a node.
        working: The driver's working folder, which relative paths are seen from.
    """

    cell: Cell
    folders: tuple[Path, ...]
    versions: Mapping[str, str]
    beside: int = 1
    beacon: Path | None = None
    needs: tuple[Need, ...] = ()
    data: DataConfig | None = None
    study: str = ""
    working: Path = Path()


@dataclass(frozen=True)
class Answer:
    """What came of an order.

    Attributes:
        kind: Done; failed; refused by a node that is not fit for it; or in lack of `needs`.
        where: The node.
        message: Why it failed or was refused.
        lacks: What has to be sent.
        files: The complete run, if its folder is not shared.
    """

    kind: Literal["done", "failed", "refused", "lacks"]
    where: str
    message: str = ""
    lacks: tuple[Need, ...] = ()
    files: Files | None = field(default=None, repr=False)


def node_versions() -> dict[str, str]:
    """What must be the same on all machines of a study; the third number of Python may differ."""
    from importlib.metadata import version

    python = ".".join(platform.python_version_tuple()[:2])
    return {"qunlearn": version("qunlearn"), "torch": torch.__version__, "python": python}


def mismatch(where: str, here: Mapping[str, str], driver: Mapping[str, str]) -> str | None:
    """What is wrong with a node's software; None if it is the driver's.

    >>> mismatch("node-3", {"torch": "2.8"}, {"torch": "2.9"})
    "The node 'node-3' has torch 2.8, this machine has torch 2.9; install the same version on both."
    >>> mismatch("node-3", {"torch": "2.9"}, {"torch": "2.9"})
    """
    for name, wanted in driver.items():
        if here.get(name) != wanted:
            return (
                f"The node {where!r} has {name} {here.get(name)}, this machine has {name} "
                f"{wanted}; install the same version on both."
            )
    return None


def host() -> str:
    """The name of this machine."""
    return socket.gethostname()


def answer(order: Order, fetch: Callable[[Need], Files | None]) -> Answer:
    """Carry out an order on this machine; `fetch` gets what was sent, None if it was not.

    A mistake in the request and a failure are answers; a bug is raised.
    """
    where = host()
    if problem := mismatch(where, node_versions(), order.versions):
        return Answer("refused", where, problem)
    if order.working.is_dir():
        os.chdir(order.working)
    set_named(order.folders)
    made_beside(order.beside)
    shared = order.beacon is None or order.beacon.is_file()
    try:
        if order.beacon is None:  # SLURM: what the driver sees, a job sees
            make_in_place(order.cell)
            return Answer("done", where)
        store = _store(order.study)
        places, lacks = _places(order, store, fetch)
        if lacks:
            return Answer("lacks", where, lacks=lacks)
        at_home = all(places[need.field] == need.path for need in order.needs)
        if shared and at_home:
            make_in_place(order.cell)
            return Answer("done", where)
        path = order.cell.path if shared else store / "cells" / _key(order)
        _make_with(order, places, path)
        if shared:
            return Answer("done", where)
        files = pack_run(path)
        Run.discard(path, finished=True)
        return Answer("done", where, files=files)
    except (Failure, UserError) as error:
        return Answer("failed", where, str(error))


def _store(study: str) -> Path:
    """The folder of this node for what a study sends to it."""
    folder = private_folder("nodes")
    if folder is None:
        raise Failure(
            f"The node {host()!r} has no cache folder that only you can write to; set "
            "XDG_CACHE_HOME there to one."
        )
    return folder / study


def forget_study(study: str) -> None:
    """Delete what a study sent to this node."""
    delete_private(_store(study))


def _places(
    order: Order, store: Path, fetch: Callable[[Need], Files | None]
) -> tuple[dict[str, Path | None], tuple[Need, ...]]:
    """Where each thing is on this node, by setting, and what is missing."""
    places: dict[str, Path | None] = {}
    lacks: list[Need] = []
    origin = order.cell.config.run
    for need in order.needs:  # the run itself comes first: its manifest identifies the data
        if lacks and need.kind == "data":
            lacks.append(need)
            continue
        path = _found(need, origin, store, fetch)
        if path is _MISSING:
            lacks.append(need)
        else:
            places[need.field] = path
            origin = path if need.field == "run" and path is not None else origin
    return places, tuple(lacks)


_MISSING = Path("missing")


def _found(
    need: Need, origin: Path, store: Path, fetch: Callable[[Need], Files | None]
) -> Path | None:
    """The path of something on this node (None: as the run's record says), or `_MISSING`."""
    for attempt in range(2):
        try:
            return find(need, origin, store)
        except LookupError:
            files = fetch(need) if attempt == 0 else None
            if files is None:
                return _MISSING
            unpack(store / need.folder, files)
    return _MISSING


def make_in_place(cell: Cell, patience: float = PATIENCE) -> None:
    """Make a cell in its own folder, once no other process writes there."""
    _patiently(lambda: None if cell.done else cell.make(), patience)


def _make_with(order: Order, places: Mapping[str, Path | None], path: Path) -> None:
    """Make a cell from what is on this node; its record names what is on the driver."""
    config = order.cell.config
    there = {name: place for name, place in places.items() if place is not None}
    local = config.model_copy(update=there)
    recorded = {name: str(getattr(config, name)) for name in there if name in ("run", "start_from")}
    recorded |= {"ids": str(config.ids)} if config.ids is not None else {}

    def make() -> None:
        if Run.is_complete(path):
            if Run(path).has_predictions:
                return
            Run.discard(path, finished=True)
        if config.threads:
            torch.set_num_threads(config.threads)
        plan = plan_forgetting(local, path, resume=True)
        provenance = dict(plan.record[TABLE])  # type: ignore[call-overload]
        if order.data is not None:
            provenance["data"] = order.data.to_dict()
        record = {**plan.record, **recorded, TABLE: provenance}
        plan = replace(plan, record=record)
        try:
            execute(plan, path, resume=True)
        except AnotherRun:  # left by a comparison with other settings
            Run.discard(path)
            execute(plan, path)

    _patiently(make)


def _patiently(make: Callable[[], None], patience: float = PATIENCE) -> None:
    """Make a cell; while another process writes to its folder, wait for it."""
    until = time.monotonic() + patience
    while True:
        try:
            return make()
        except Locked:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def _key(order: Order) -> str:
    """The name of a cell's folder on this node; another one for other settings or another run."""
    config = order.cell.config.model_dump_json()
    text = "\n".join([str(order.cell.path), config, *(need.digest for need in order.needs)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]
