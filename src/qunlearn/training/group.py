"""The processes that a launcher started: rank 0 runs the command, the others do as it says.

torchrun and srun start the same command in every process. Only rank 0 reads the settings, writes
and prints. It sends each task (train this network, forget these samples) to the others, which need
nothing but the data. So exactly one process writes, whichever command it is.
"""

from __future__ import annotations

import io
import os
import pickle
import platform
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d as c10d
from torch.distributed.rendezvous import rendezvous

from qunlearn.data import ImageData
from qunlearn.data.mapped import MappedFile, file_of
from qunlearn.errors import Failure, UserError
from qunlearn.store.info import versions
from qunlearn.training.checkpoint import digest
from qunlearn.training.config import ComputeConfig
from qunlearn.training.launcher import Launcher, launcher

RENDEZVOUS_TIMEOUT = 300.0
"""Seconds that processes wait for each other at the start."""

FAILURE_TIMEOUT = 30.0
"""Seconds that a process which failed waits for the others to fail as well, before it gives up."""

COLLECTIVE_TIMEOUT = timedelta(days=7)
"""Limit of one collective operation: the others wait while rank 0 plans and evaluates."""

Work = Callable[[Any], Any]
"""What every process calls with its Fabric."""


@dataclass(frozen=True)
class Task:
    """What rank 0 sends: the settings of the devices, and the pickled work."""

    config: ComputeConfig
    work: bytes


@dataclass(frozen=True)
class Images:
    """Images that later tasks refer to: the tensor, or the file that it is mapped from."""

    key: str
    content: Tensor | MappedFile


@dataclass
class Group:
    """The processes of a launcher, as this process sees them."""

    launcher: Launcher
    store: c10d.Store
    tasks: int = 0
    broken: bool = False
    images: dict[str, Tensor] = field(default_factory=dict)

    def lead(self, config: ComputeConfig, work: Work, run: Callable[[], Any]) -> Any:
        """Have every process do the work; `run` does it in this one."""
        if self.broken:
            raise self._lost("it failed before")
        self.tasks += 1
        try:
            with self._disconnection_as_failure():
                self._send(Task(config, _pickled(work, self.images)))
                result = run()
        except (UserError, Failure):
            if not self.broken:
                self._report("")
                self._await_others()
            raise
        self._report("")
        return result

    @contextmanager
    def _disconnection_as_failure(self) -> Iterator[None]:
        """A connection that breaks in the block is a `Failure` with what the other one reported."""
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, Failure) or not is_disconnection(error):
                raise
            self.broken = True
            raise self._lost(str(error).splitlines()[0]) from None

    def place(self, data: ImageData) -> None:
        """Bring the images to every process: those of a file are looked for on each node.

        What is missing anywhere is a `UserError`, before anything is written.
        """
        file = file_of(data.images)
        key = digest({"images": data.images}) if file is None else file.digest
        if key not in self.images:
            with self._disconnection_as_failure():
                self._send(Images(key, data.images if file is None else file))
                missing = [reason for reason in self._gather("") if reason]
            if missing:
                raise UserError(missing[0])
            self.images.clear()
        self.images[key] = data.images

    def follow(self, run: Callable[[ComputeConfig, Work], None]) -> None:
        """Do what rank 0 sends, until it says that all is done."""
        while True:
            message = self._receive()
            if message is None:
                return
            if isinstance(message, Images):
                self._receive_images(message)
            elif isinstance(message, Task):
                self.tasks += 1
                try:
                    run(message.config, _unpickled(message.work, self.images))
                    self._report("")
                except Exception as error:
                    # Rank 0 either fails likewise, or waits for this process in vain.
                    self._report(f"On {socket.gethostname()}: {error}")
                    self._await_leader(error)

    def end(self) -> None:
        """Tell the others that all is done, and part."""
        if not self.broken and self.launcher.rank == 0:
            with suppress(RuntimeError):
                self._send(None)
        with suppress(RuntimeError):
            dist.destroy_process_group()

    def check_versions(self) -> None:
        """Raise if processes run different software, which would compute different things."""
        host = socket.gethostname()
        everywhere = self._gather((host, platform.machine(), versions()))
        if self.launcher.rank:
            return
        leader, *others = [(name, {**has, "processor": kind}) for name, kind, has in everywhere]
        for other, has in others:
            for name, version in has.items():
                expected = leader[1][name]
                if version != expected:
                    raise UserError(
                        f"{host} has {name} {expected} and {other} has {version}; results would "
                        "depend on the node: install the same version on both."
                    )

    def _receive_images(self, message: Images) -> None:
        """Open or take the images that rank 0 names; say if they are not on this node."""
        reason, content = "", message.content
        try:
            self.images.clear()
            tensor = content.open() if isinstance(content, MappedFile) else content
            self.images[message.key] = tensor
        except UserError as error:
            reason = f"On {socket.gethostname()}: {error}"
        self._gather(reason)

    def _send(self, message: Task | Images | None) -> None:
        dist.broadcast_object_list([message], src=0, device=torch.device("cpu"))

    def _receive(self) -> object:
        received: list[object] = [None]
        dist.broadcast_object_list(received, src=0, device=torch.device("cpu"))
        return received[0]

    def _gather(self, value: Any) -> list[Any]:
        gathered: list[Any] = [None] * self.launcher.world
        dist.all_gather_object(gathered, value)
        return gathered

    def _report(self, reason: str) -> None:
        with suppress(RuntimeError):  # the store is rank 0's, and may be gone
            self.store.set(self._key(self.launcher.rank), reason)

    def _reported(self, rank: int) -> str | None:
        with suppress(RuntimeError):
            if self.store.check([self._key(rank)]):
                return str(self.store.get(self._key(rank)).decode())
        return None

    def _key(self, rank: int) -> str:
        return f"task/{self.tasks}/{rank}"

    def _await_others(self) -> None:
        """After a failure here: the group is broken unless the others failed, or ended, as well."""
        until = time.monotonic() + FAILURE_TIMEOUT
        others = range(1, self.launcher.world)
        while any(self._reported(rank) is None for rank in others):
            if time.monotonic() > until:
                self.broken = True
                return
            time.sleep(0.05)

    def _await_leader(self, error: Exception) -> None:
        until = time.monotonic() + FAILURE_TIMEOUT
        while self._reported(0) is None:
            if time.monotonic() > until:
                raise error
            time.sleep(0.05)

    def _lost(self, reason: str) -> Failure:
        reports = (self._reported(rank) for rank in range(1, self.launcher.world))
        message = next((report for report in reports if report), None)
        if message:
            return Failure(message)
        return Failure(
            f"One of the {self.launcher.world} processes has ended, or cannot be reached any more "
            f"({reason}); the run is not complete: start all again with --resume."
        )


_group: Group | None = None


def group() -> Group | None:
    """The group that this process belongs to, if a launcher started several."""
    return _group


def place(data: ImageData) -> None:
    """Bring the images of a data set to every process; with a single one, do nothing."""
    if _group is not None:
        _group.place(data)


@contextmanager
def together(run: Callable[[ComputeConfig, Work], None]) -> Iterator[bool]:
    """Join the processes of the launcher; yields whether this one runs the command.

    The others do what it says (by `run`) before the block begins, and end silently: whatever there
    is to say, rank 0 says.
    """
    global _group
    with _quiet_unless_first():
        process = launcher()
        if process is None or process.world == 1:
            yield True
            return
        _group = Group(process, _connect(process))
        try:
            _group.check_versions()
            if process.rank:
                warnings.simplefilter("ignore")
                _group.follow(run)
            yield process.rank == 0
        finally:
            _group.end()
            _group = None


@contextmanager
def _quiet_unless_first() -> Iterator[None]:
    try:
        yield
    except BaseException:
        rank = os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or "0"
        if rank == "0":
            raise
        # Without the interpreter's shutdown, in which threads of broken connections may abort.
        os._exit(1)


def _connect(process: Launcher) -> c10d.Store:
    """Meet the other processes; a `UserError` if they do not come."""
    if process.address in ("localhost", "127.0.0.1", "::1"):
        loopback = next((n for _, n in socket.if_nameindex() if n in ("lo", "lo0")), None)
        if loopback:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", loopback)
    os.environ |= {"MASTER_ADDR": process.address, "MASTER_PORT": str(process.port)}
    rank, world, timeout = process.rank, process.world, timedelta(seconds=RENDEZVOUS_TIMEOUT)
    try:
        store, _, _ = next(rendezvous("env://", rank, world, timeout=timeout))
        store.set_timeout(timeout)
        store = c10d.PrefixStore("qunlearn", store)
        store.set(f"here/{rank}", "")
        store.wait([f"here/{each}" for each in range(world)], timeout)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=world, timeout=COLLECTIVE_TIMEOUT
        )
    except (RuntimeError, ValueError, OSError) as error:
        raise UserError(
            f"The {process.world} processes of {process.name} did not meet at "
            f"{process.address}:{process.port} within {RENDEZVOUS_TIMEOUT:g} s "
            f"({str(error).splitlines()[0]}); check that all were started and reach that address."
        ) from None
    return store


def is_disconnection(error: BaseException) -> bool:
    """Whether an error says that another process is gone."""
    text = str(error).lower()
    return isinstance(error, dist.DistError) or any(
        word in text for word in ("gloo", "nccl", "connection closed", "connection reset")
    )


class _Pickler(pickle.Pickler):
    """Refers to images that every process has by their key."""

    def __init__(self, file: io.BytesIO, images: dict[str, Tensor]):
        super().__init__(file)
        self.keys = {id(tensor): key for key, tensor in images.items()}

    def persistent_id(self, value: object) -> str | None:
        """The key of images that every process has."""
        return self.keys.get(id(value))


class _Unpickler(pickle.Unpickler):
    """The other side; what it reads was written by rank 0, and by nobody else."""

    def __init__(self, file: io.BytesIO, images: dict[str, Tensor]):
        super().__init__(file)
        self.images = images

    def persistent_load(self, key: str) -> Tensor:
        """The images of a key."""
        return self.images[key]


def _pickled(work: Work, images: dict[str, Tensor]) -> bytes:
    file = io.BytesIO()
    _Pickler(file, images).dump(work)
    return file.getvalue()


def _unpickled(work: bytes, images: dict[str, Tensor]) -> Work:
    loaded: Work = _Unpickler(io.BytesIO(work), images).load()
    return loaded
