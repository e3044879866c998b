"""Child processes: they import nothing from the working folder, and none outlives its parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path

KILLED_AFTER = 5.0
"""Seconds that a child has to exit after SIGTERM, before SIGKILL."""


def at_a_time() -> int:
    """Maximum number of concurrent worker processes: one per core, and at least two."""
    return max(2, os.cpu_count() or 1)


def one_of_several(environment: Mapping[str, str]) -> bool:
    """Whether torchrun or srun has started this process, and perhaps others with it.

    >>> one_of_several({"RANK": "0", "WORLD_SIZE": "2"}), one_of_several({"SLURM_NTASKS": "2"})
    (True, False)
    """
    return {"RANK", "WORLD_SIZE"} <= environment.keys() or (
        environment.get("SLURM_STEP_NUM_TASKS", "1") != "1"
    )


def absolute_entries(path: str) -> str:
    """A search path such as PATH without its empty and relative entries (the working folder).

    >>> absolute_entries(":/usr/bin:.:bin:/bin")
    '/usr/bin:/bin'
    """
    return os.pathsep.join(e for e in path.split(os.pathsep) if Path(e).is_absolute())


def python_path(path: str) -> str:
    """PYTHONPATH without the working folder; other relative entries become absolute.

    >>> python_path(":/lib:.:./") + python_path("")
    '/lib'
    """
    entries = (e for e in path.split(os.pathsep) if os.path.normpath(e or ".") != ".")
    return os.pathsep.join(os.path.abspath(entry) for entry in entries)  # noqa: PTH100


def safe_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables under which a started Python ignores its working folder."""
    return {
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": python_path(environment.get("PYTHONPATH", "")),
        "PATH": absolute_entries(environment.get("PATH", os.defpath)),
    }


def run_python(code: str, *words: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run Python code in a child process."""
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *words],
        env={**os.environ, **safe_variables(os.environ)},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@contextmanager
def safe_children() -> Iterator[None]:
    """Within the block, processes that multiprocessing starts ignore their working folder.

    They inherit this process's `sys.path`. If the block raises, they are terminated.
    """
    before = {name: os.environ.get(name) for name in safe_variables(os.environ)}
    others = set(multiprocessing.active_children())
    os.environ.update(safe_variables(os.environ))
    try:
        _start_tracker()
        yield
    except BaseException:
        end([child for child in multiprocessing.active_children() if child not in others])
        raise
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _start_tracker() -> None:
    """Start multiprocessing's resource tracker with SIGHUP ignored.

    The tracker ignores the other signals by itself, and exits with this process.
    """
    if (
        threading.current_thread() is not threading.main_thread()
    ):  # only the main thread may set signal handlers
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        resource_tracker.ensure_running()
    finally:
        signal.signal(signal.SIGHUP, before or signal.SIG_DFL)


def end(processes: Iterable[multiprocessing.process.BaseProcess]) -> None:
    """Terminate processes; kill those that have not exited after `KILLED_AFTER` seconds."""
    children = [process for process in processes if process.pid]
    for child in children:
        child.terminate()
    for child in children:
        child.join(KILLED_AFTER)
        if child.is_alive():
            child.kill()
            child.join()
