"""Reaching a Ray cluster: within a time limit, and only if each node has the same software."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import chdir
from typing import Any

from qunlearn.errors import UserError
from qunlearn.study.executors.config import ExecutorConfig
from qunlearn.study.executors.node import mismatch, node_versions

CONNECT_TIMEOUT = 20.0
"""Seconds that a cluster has to answer."""

VERSIONS_TIMEOUT = 300.0
"""Seconds that a node has to say which software it has: it imports torch for that."""


def import_ray() -> Any:
    """Ray, or the way to get it."""
    try:
        import ray
    except ImportError:
        raise UserError(
            "--executor ray needs Ray, which is not installed; run: pip install 'qunlearn[ray]'."
        ) from None
    # Of a node that dies Ray writes pages to standard output, where `--json` has its result.
    ray._private.worker.print_to_stdstream = lambda *lines, **how: None
    return ray


def connect(ray: Any, address: str) -> None:
    """Connect to the cluster at an address; a `UserError` after `CONNECT_TIMEOUT` seconds."""
    until = time.monotonic() + CONNECT_TIMEOUT
    no_answer = (
        f"No Ray cluster answers at {address!r} within {CONNECT_TIMEOUT:g} s; check --address, and "
    )
    no_cluster = UserError(f"{no_answer}start one with `ray start --head`.")
    if address != "auto":
        host_name, port = _host_and_port(address)
        try:
            socket.create_connection((host_name, port), CONNECT_TIMEOUT).close()
        except OSError:
            raise no_cluster from None
    problems: list[BaseException] = []

    def init() -> None:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except BaseException as error:
            problems.append(error)

    # In a thread: Ray itself would try for minutes, and cannot be interrupted.
    thread = threading.Thread(target=init, daemon=True)
    # Ray has its workers import from the driver's working folder: it is told of another one.
    with chdir("/"):
        thread.start()
        thread.join(max(0.1, until - time.monotonic()))
    if thread.is_alive():  # Ray goes on trying when a token is wrong, too
        raise UserError(
            f"{no_answer}if the cluster asks for a token, that this machine has the same one and "
            "RAY_AUTH_MODE=token."
        )
    if problems:
        if isinstance(problems[0], ConnectionError):
            raise no_cluster
        # In one line: Ray names the two versions, or the missing token, on further lines.
        why = " ".join(str(problems[0]).split()) or type(problems[0]).__name__
        raise UserError(f"Ray cannot be reached at {address!r}: {why}") from None


def _host_and_port(address: str) -> tuple[str, int]:
    name, _, port = address.removeprefix("ray://").rpartition(":")
    if not name or not port.isdigit() or not 0 < int(port) < 65536:
        raise UserError(
            f"--address {address} is no address of a Ray cluster; write auto, HOST:PORT or "
            "ray://HOST:PORT."
        )
    return name.strip("[]"), int(port)


def checked_slots(ray: Any, config: ExecutorConfig) -> dict[str, int]:
    """How many cells each node can make at a time, by its id; raises if one has other software."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

    alive = [node for node in ray.nodes() if node["Alive"]]
    slots = slots_of(ray, config)
    if not slots:
        most = {kind: max(n["Resources"].get(kind, 0) for n in alive) for kind in ("CPU", "GPU")}
        raise UserError(
            f"No node of the Ray cluster has room for a cell: it needs {config.cpus_per_cell:g} "
            f"processors and {config.gpus_per_cell:g} GPUs, and the largest has {most['CPU']:g} "
            f"and {most['GPU']:g}; lower --cpus-per-cell or --gpus-per-cell."
        )
    task = ray.remote(num_cpus=0, max_retries=1)(node_versions)
    names = {node["NodeID"]: _name(node) for node in alive if node["NodeID"] in slots}
    pending = {
        task.options(scheduling_strategy=On(node, soft=False)).remote(): name
        for node, name in names.items()
    }
    wanted, until = node_versions(), time.monotonic() + VERSIONS_TIMEOUT
    for ref, name in pending.items():
        try:
            versions = ray.get(ref, timeout=max(0.1, until - time.monotonic()))
        except ray.exceptions.GetTimeoutError:
            raise UserError(
                f"The node {name!r} did not report its versions within {VERSIONS_TIMEOUT:g} s; "
                "check it, or take it out of the cluster."
            ) from None
        except ray.exceptions.RayError as error:
            raise UserError(
                f"The node {name!r} cannot import qunlearn: {_last(error)}; install qunlearn "
                f"{wanted['qunlearn']} there."
            ) from None
        if problem := mismatch(name, versions, wanted):
            raise UserError(problem)
    return slots


def slots_of(ray: Any, config: ExecutorConfig) -> dict[str, int]:
    """How many cells each node can make at a time, by its id; only those that can make one."""
    alive = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
    slots = {node: _slots(resources, config) for node, resources in alive.items()}
    return {node: count for node, count in slots.items() if count}


def _slots(resources: dict[str, float], config: ExecutorConfig) -> int:
    room = resources.get("CPU", 0) / config.cpus_per_cell
    if config.gpus_per_cell:
        room = min(room, resources.get("GPU", 0) / config.gpus_per_cell)
    return int(room + 1e-9)


def _name(node: Any) -> str:
    return str(node.get("NodeManagerHostname") or node["NodeManagerAddress"])


def _last(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
