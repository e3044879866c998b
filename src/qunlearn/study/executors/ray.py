"""Cells made on a Ray cluster, as tasks; a cell whose worker or node dies is submitted again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qunlearn.errors import Failure, UserError
from qunlearn.store.files import beacon
from qunlearn.store.parcel import Files, unpack_run
from qunlearn.store.place import named_folders
from qunlearn.study.executors.base import (
    ATTEMPTS,
    POLL,
    Event,
    Executor,
    Finished,
    Lost,
    Started,
)
from qunlearn.study.executors.config import ExecutorConfig
from qunlearn.study.executors.needs import Need, needs_of, packed, place_on_record
from qunlearn.study.executors.node import Answer, Order, answer, forget_study, host, node_versions
from qunlearn.study.executors.ray_cluster import CONNECT, connect, fit_nodes, need_ray

if TYPE_CHECKING:
    from qunlearn.runs.data_config import DataConfig
    from qunlearn.runs.request import ForgetConfig
    from qunlearn.study.cells import Cell

WINDOW = 2
"""Cells that are submitted for each one that the cluster can make at a time."""


def on_ray(config: ExecutorConfig, home: Path) -> Executor:
    """Connect to the cluster, and check each node's software."""
    ray = need_ray()
    connect(ray, config.address or "auto")
    try:
        return RayExecutor(ray, config, home, fit_nodes(ray, config))
    except BaseException:
        ray.shutdown()
        raise


class Board:
    """Where a node says which cell it has begun; runs in the cluster, for the driver's display."""

    def __init__(self) -> None:
        self._begun: list[tuple[Path, str]] = []

    def began(self, path: Path, where: str) -> None:
        """A cell was begun."""
        self._begun.append((path, where))

    def take(self) -> list[tuple[Path, str]]:
        """What was begun since this was last asked."""
        begun, self._begun = self._begun, []
        return begun


def carry_out(order: Order, sent: dict[str, list[Any]], board: Any) -> Answer:
    """The task that a node runs; each reference is in a list, so that it is fetched if needed."""
    import ray

    board.began.remote(order.cell.path, host())

    def fetch(need: Need) -> Files | None:
        refs = sent.get(need.folder)
        files: Files | None = ray.get(refs[0]) if refs else None
        return files

    return answer(order, fetch)


@dataclass
class RayExecutor:
    """Submits cells as tasks and waits for them.

    Attributes:
        ray: The module.
        config: What a cell gets.
        home: The folder of the study.
        rooms: How many cells each node can make at a time.
    """

    ray: Any
    config: ExecutorConfig
    home: Path
    rooms: dict[str, int]
    apart = True

    _waiting: list[Cell] = field(default_factory=list)
    _running: dict[Any, Cell] = field(default_factory=dict)
    _attempts: dict[Path, int] = field(default_factory=dict)
    _where: dict[Path, str] = field(default_factory=dict)
    _sent: dict[str, list[Any]] = field(default_factory=dict)
    _needs: dict[str, tuple[tuple[Need, ...], DataConfig]] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)
    _beacon: Path | None = None
    _polled: float = 0.0

    def __post_init__(self) -> None:
        options = {"num_cpus": self.config.cpus_per_cell, "num_gpus": self.config.gpus_per_cell}
        # Tasks are repeated here, not by Ray, so that what died is shown and counted.
        self._task = self.ray.remote(max_retries=0, **options)(carry_out)
        self._board = self.ray.remote(num_cpus=0, max_restarts=-1)(Board).remote()

    def submit(self, cells: Sequence[Cell]) -> None:
        """Hand over cells; a few more than there is room for are with Ray at a time."""
        if self._beacon is None:
            self._beacon = self._stack.enter_context(beacon(self.home)).absolute()
        self._waiting += cells
        self._fill()

    def _fill(self) -> None:
        while self._waiting and len(self._running) < WINDOW * sum(self.rooms.values()):
            cell = self._waiting.pop(0)
            needs, data = self._needed(cell.config)
            order = Order(
                cell,
                named_folders(),
                node_versions(),
                beside=max(self.rooms.values()),
                beacon=self._beacon,
                needs=needs,
                data=data,
                study=needs[0].digest[:32],
                working=Path.cwd(),
            )
            sent = {n.folder: self._sent[n.folder] for n in needs if n.folder in self._sent}
            self._running[self._task.remote(order, sent, self._board)] = cell

    def _needed(self, config: ForgetConfig) -> tuple[tuple[Need, ...], DataConfig]:
        """What a cell reads; looked up once for all cells that read the same."""
        key = f"{config.run}\n{config.start_from}\n{config.ids}\n{config.where}"
        if key not in self._needs:
            self._needs[key] = needs_of(config), place_on_record(config)
        return self._needs[key]

    def events(self) -> Iterator[Event]:
        """What the cluster has done."""
        refs = list(self._running)
        ready, _ = self.ray.wait(refs, num_returns=1, timeout=POLL) if refs else ([], [])
        if ready:  # whatever else is ready by now, too
            ready, _ = self.ray.wait(refs, num_returns=len(refs), timeout=0)
        yield from self._begun(bool(ready))
        for ref in ready:
            yield from self._settled(ref, self._running.pop(ref))
        self._fill()

    def _begun(self, ready: bool) -> Iterator[Event]:
        if ready and time.monotonic() - self._polled < POLL:
            return
        self._polled = time.monotonic()
        try:
            begun = self.ray.get(self._board.take.remote(), timeout=POLL)
        except self.ray.exceptions.RayError:  # its node died, or is busy: only the display lacks
            return
        cells = {cell.path: cell for cell in self._running.values()}
        for path, where in begun:
            if path in cells:
                self._where[path] = where
                yield Started(cells[path], where)

    def _settled(self, ref: Any, cell: Cell) -> Iterator[Event]:
        errors = self.ray.exceptions
        try:
            result: Answer = self.ray.get(ref)
        except errors.RayTaskError:
            raise  # a bug of ours, with its trace
        except errors.RayError as error:  # the worker or the node died, or lacked memory
            yield from self._again(cell, _died(error))
            return
        if result.kind == "lacks":
            self._send(result, cell.config)
            self._waiting.insert(0, cell)
        elif result.kind == "refused":
            raise Failure(f"{result.message} What is finished is kept.")
        elif result.kind == "failed":
            yield Finished(cell, result.where, Failure(result.message))
        else:
            if result.files is not None:
                unpack_run(cell.path, result.files)
            yield Finished(cell, result.where)

    def _again(self, cell: Cell, why: str) -> Iterator[Event]:
        count = self._attempts[cell.path] = self._attempts.get(cell.path, 0) + 1
        where = self._where.get(cell.path, "a node")
        if count < ATTEMPTS:
            self._waiting.insert(0, cell)
            yield Lost(cell, where, why)
        else:
            yield Finished(cell, where, Failure(f"{why}, {count} times"))

    def _send(self, result: Answer, config: ForgetConfig) -> None:
        """Put what a node lacks into the object store, once; each node fetches it once."""
        lacks = {need.folder for need in result.lacks} - self._sent.keys()
        for need in self._needed(config)[0]:
            if need.folder not in lacks:
                continue
            try:
                self._sent[need.folder] = [self.ray.put(packed(need, config))]
            except UserError as error:
                raise Failure(
                    f"The node {result.where!r} lacks data that the study reads. {error} What is "
                    "finished is kept."
                ) from None

    def close(self, interrupted: bool) -> None:
        """Delete what was sent, unless the study is to be resumed; disconnect, which ends tasks."""
        try:
            if not interrupted and self._sent:
                self._forget()
        finally:
            self._stack.close()
            self.ray.shutdown()

    def _forget(self) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

        task = self.ray.remote(num_cpus=0, max_retries=0)(forget_study)
        studies = {needs[0].digest[:32] for needs, _ in self._needs.values()}
        alive = [node["NodeID"] for node in self.ray.nodes() if node["Alive"]]
        refs = [
            task.options(scheduling_strategy=On(node, soft=True)).remote(study)
            for node in alive
            for study in studies
        ]
        self.ray.wait(refs, num_returns=len(refs), timeout=CONNECT)


def _died(error: BaseException) -> str:
    name = type(error).__name__
    if "OutOfMemory" in name:
        return "its node ran out of memory"
    return "its node died" if "Node" in name else "its worker died"
