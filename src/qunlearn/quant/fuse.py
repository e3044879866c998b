"""Kernels in C: one pass over memory where plain torch makes ten. operators.py calls them.

The arithmetic is the same either way. kernels.c is compiled when it is first wanted, which takes a
fraction of a second; the library is kept for other processes on the same machine (prebuilt.py).
"""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path

import torch

from qunlearn.children import absolute_entries
from qunlearn.quant.limits import SMALLEST_SCALE
from qunlearn.quant.prebuilt import find_library, keep_library, library_name

SOURCE = Path(__file__).with_name("kernels.c")

FLAGS = (
    *("-std=c11", "-O3", "-fPIC", "-fno-math-errno", "-fno-trapping-math"),
    "-ffp-contract=off",  # a product and a sum are rounded each by itself, as in torch
    f"-DSMALLEST_SCALE={SMALLEST_SCALE!r}",
)
WAYS = (
    ("-march=native", "-mprefer-vector-width=512", "-fopenmp"),
    ("-march=native", "-fopenmp"),
    ("-march=native", "-fopenmp-simd"),
    ("-fopenmp-simd",),
)
"""Flags of the best code, and of such as other compilers make, too; the last use one thread."""

PATIENCE = 30.0
"""Seconds in which a compiler must have made the library, in whichever way."""
LONGEST = 1 << 16
"""Bytes that are read of what a compiler says."""
LISTS = ("PATH", "LD_LIBRARY_PATH")
TOLD = (*LISTS, "HOME", "DEVELOPER_DIR", "SDKROOT", "MACOSX_DEPLOYMENT_TARGET")
"""Variables that a compiler may need; others could name files to be read or run."""

REALS = {torch.float32: "float", torch.float64: "double"}

_on: ContextVar[bool] = ContextVar("fused", default=False)


@contextmanager
def fused(on: bool = True) -> Iterator[None]:
    """Within the block, kernels are compiled (or with `on=False`, are not); see `why_not`."""
    token = _on.set(on)
    try:
        yield
    finally:
        _on.reset(token)


def is_fused() -> bool:
    """Whether kernels are compiled here."""
    return _on.get()


@cache
def why_not() -> str | None:
    """Why this machine cannot compile kernels, in a few words; None if it can."""
    try:
        library(torch.float32)
    except RuntimeError as error:
        return first_line(error)
    return None


def first_line(error: Exception) -> str:
    """What an error says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next(iter(lines), type(error).__name__).rstrip(".") + "."


@cache
def library(kind: torch.dtype) -> ctypes.CDLL:
    """kernels.c, compiled for this machine and for numbers of a kind."""
    named = os.environ.get("CC") or "cc"
    try:
        words = shlex.split(named)
    except ValueError:
        words = [named]
    # An empty or relative entry of PATH is the working folder, whose files are no programs of ours.
    program = words and shutil.which(words[0], path=compiler_environment("")["PATH"])
    if not program:
        raise RuntimeError(f"there is no C compiler {named!r}; install one, or name it in CC.")
    compiler, ends = [str(Path(program).absolute()), *words[1:]], time.monotonic() + PATIENCE
    said, version = "", None
    for way in WAYS:
        flags = (*way, f"-DREAL={REALS[kind]}")
        try:
            with tempfile.TemporaryDirectory(prefix="qunlearn-") as folder:
                if version is None:
                    version = _version(compiler, folder, ends - time.monotonic())
                name = library_name(SOURCE.read_bytes(), [*compiler, *FLAGS, *flags], version)
                if path := find_library(name):
                    with suppress(OSError):  # a folder from which nothing can be run, perhaps
                        return _loaded(path)
                path = _build(compiler, flags, folder, ends - time.monotonic())
                found = _loaded(path)
                keep_library(name, path)
                return found
        except subprocess.TimeoutExpired:
            raise RuntimeError(
                f"{named} did not compile {SOURCE.name} within {PATIENCE:g} seconds; name another "
                "compiler in CC."
            ) from None
        except subprocess.CalledProcessError as error:
            lines = error.stderr.splitlines()
            said = next((line for line in lines if "error" in line.lower()), str(error))
        except OSError as error:
            said = str(error)
    raise RuntimeError(f"{named} cannot compile or load {SOURCE.name}: {said}")


def compiler_environment(folder: str) -> dict[str, str]:
    """What a compiler is told of the environment: where programs are, and where to work."""
    told = {name: os.environ[name] for name in TOLD if name in os.environ}
    lists = {"PATH": os.defpath, **told}
    absolute = {name: absolute_entries(lists[name]) for name in LISTS if name in lists}
    return {**told, **absolute, "TMPDIR": folder, "LC_ALL": "C"}


def _build(
    compiler: Sequence[str], flags: Sequence[str], folder: str, seconds: float = PATIENCE
) -> Path:
    # In two steps, so that the threads of OpenMP are torch's: linked by itself, the library would
    # bring its own, and the two would wait for each other's processors.
    compiled, linked = Path(folder, "kernels.o"), Path(folder, "kernels.so")
    ends = time.monotonic() + seconds
    for command in (
        [*compiler, *FLAGS, *flags, "-c", str(SOURCE), "-o", str(compiled)],
        [*compiler, "-shared", str(compiled), "-o", str(linked), "-lm"],
    ):
        _run(command, folder, max(0.0, ends - time.monotonic()))
    return linked


def _version(compiler: Sequence[str], folder: str, seconds: float) -> str:
    """What a compiler says of itself; nothing if it does not answer."""
    try:
        return _run([*compiler, "--version"], folder, seconds)
    except (subprocess.CalledProcessError, OSError):
        return ""


def _run(command: Sequence[str], folder: str, seconds: float) -> str:
    """Run a compiler in its own folder, and end it with all that it started once time is up."""
    with tempfile.TemporaryFile(dir=folder) as said:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=compiler_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        said.seek(0)
        words = said.read(LONGEST).decode(errors="replace")
        if code:
            raise subprocess.CalledProcessError(code, list(command), stderr=words)
        return words


def _loaded(path: Path) -> ctypes.CDLL:
    """A library with every kernel in it."""
    found = ctypes.CDLL(str(path))
    for name in re.findall(r"^int (\w+)\(", SOURCE.read_text(), re.MULTILINE):
        if not hasattr(found, name):
            raise OSError(f"the library that was made has no function {name!r}")
    return found
