"""Kernels in C: one pass over memory where plain torch makes ten. operators.py calls them.

The arithmetic is the same either way. kernels.c is compiled at its first use, which takes a
fraction of a second. The library is cached for other processes on the same machine (prebuilt.py).
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
from qunlearn.quant.prebuilt import cached_library, library_name, save_library

SOURCE = Path(__file__).with_name("kernels.c")

FLAGS = (
    *("-std=c11", "-O3", "-fPIC", "-fno-math-errno", "-fno-trapping-math"),
    "-ffp-contract=off",  # a product and a sum are rounded each by itself, as in torch
    f"-DSMALLEST_SCALE={SMALLEST_SCALE!r}",
)
FLAG_SETS = (
    ("-march=native", "-mprefer-vector-width=512", "-fopenmp"),
    ("-march=native", "-fopenmp"),
    ("-march=native", "-fopenmp-simd"),
    ("-fopenmp-simd",),
)
"""Compiler flags, fastest code first; the last two sets use one thread."""

COMPILE_TIMEOUT = 30.0
"""Seconds in which the library must be compiled, over all sets of flags."""
MAX_OUTPUT = 1 << 16
"""Bytes of a compiler's output that are read."""
PATH_VARIABLES = ("PATH", "LD_LIBRARY_PATH")
PASSED_VARIABLES = (*PATH_VARIABLES, "HOME", "DEVELOPER_DIR", "SDKROOT", "MACOSX_DEPLOYMENT_TARGET")
"""Environment variables passed to a compiler; others could name files to be read or run."""

C_TYPES = {torch.float32: "float", torch.float64: "double"}

_on: ContextVar[bool] = ContextVar("fused", default=False)


@contextmanager
def fused(on: bool = True) -> Iterator[None]:
    """Within this block compiled kernels are used (with `on=False`, plain torch); see `why_not`."""
    token = _on.set(on)
    try:
        yield
    finally:
        _on.reset(token)


def is_fused() -> bool:
    """Whether compiled kernels are used in the current context."""
    return _on.get()


@cache
def why_not() -> str | None:
    """The reason why this machine cannot compile kernels, in one line; None if it can."""
    try:
        library(torch.float32)
    except RuntimeError as error:
        return first_line(error)
    return None


def first_line(error: Exception) -> str:
    """The first line of an error message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next(iter(lines), type(error).__name__).rstrip(".") + "."


@cache
def library(kind: torch.dtype) -> ctypes.CDLL:
    """kernels.c, compiled for this machine and for one floating-point type."""
    command = os.environ.get("CC") or "cc"
    try:
        words = shlex.split(command)
    except ValueError:
        words = [command]
    # An empty or relative entry of PATH is the working folder, whose files must not be run.
    program = words and shutil.which(words[0], path=compiler_environment("")["PATH"])
    if not program:
        raise RuntimeError(f"there is no C compiler {command!r}; install one, or name it in CC.")
    compiler, deadline = (
        [str(Path(program).absolute()), *words[1:]],
        time.monotonic() + COMPILE_TIMEOUT,
    )
    message, version = "", None
    for flag_set in FLAG_SETS:
        flags = (*flag_set, f"-DREAL={C_TYPES[kind]}")
        try:
            with tempfile.TemporaryDirectory(prefix="qunlearn-") as folder:
                if version is None:
                    version = _version(compiler, folder, deadline - time.monotonic())
                name = library_name(SOURCE.read_bytes(), [*compiler, *FLAGS, *flags], version)
                if path := cached_library(name):
                    with suppress(OSError):  # for example a folder mounted noexec
                        return _loaded(path)
                path = _build(compiler, flags, folder, deadline - time.monotonic())
                loaded = _loaded(path)
                save_library(name, path)
                return loaded
        except subprocess.TimeoutExpired:
            raise RuntimeError(
                f"{command} did not compile {SOURCE.name} within {COMPILE_TIMEOUT:g} seconds; name "
                "another compiler in CC."
            ) from None
        except subprocess.CalledProcessError as error:
            lines = error.stderr.splitlines()
            message = next((line for line in lines if "error" in line.lower()), str(error))
        except OSError as error:
            message = str(error)
    raise RuntimeError(f"{command} cannot compile or load {SOURCE.name}: {message}")


def compiler_environment(folder: str) -> dict[str, str]:
    """The environment of a compiler: where programs are, and a folder for temporary files."""
    passed = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
    lists = {"PATH": os.defpath, **passed}
    absolute = {name: absolute_entries(lists[name]) for name in PATH_VARIABLES if name in lists}
    return {**passed, **absolute, "TMPDIR": folder, "LC_ALL": "C"}


def _build(
    compiler: Sequence[str], flags: Sequence[str], folder: str, seconds: float = COMPILE_TIMEOUT
) -> Path:
    # In two steps, so that the library uses torch's OpenMP runtime. Linked with -fopenmp it would
    # load a second one, and the threads of the two would compete for the cores.
    compiled, linked = Path(folder, "kernels.o"), Path(folder, "kernels.so")
    deadline = time.monotonic() + seconds
    for command in (
        [*compiler, *FLAGS, *flags, "-c", str(SOURCE), "-o", str(compiled)],
        [*compiler, "-shared", str(compiled), "-o", str(linked), "-lm"],
    ):
        _run(command, folder, max(0.0, deadline - time.monotonic()))
    return linked


def _version(compiler: Sequence[str], folder: str, seconds: float) -> str:
    """The output of `--version`; empty if the compiler fails."""
    try:
        return _run([*compiler, "--version"], folder, seconds)
    except (subprocess.CalledProcessError, OSError):
        return ""


def _run(command: Sequence[str], folder: str, seconds: float) -> str:
    """Run a compiler in a folder; at the timeout, kill it and its child processes."""
    with tempfile.TemporaryFile(dir=folder) as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=compiler_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        output.seek(0)
        text = output.read(MAX_OUTPUT).decode(errors="replace")
        if code:
            raise subprocess.CalledProcessError(code, list(command), stderr=text)
        return text


def _loaded(path: Path) -> ctypes.CDLL:
    """Load a library and check that it has every kernel."""
    loaded = ctypes.CDLL(str(path))
    for name in re.findall(r"^int (\w+)\(", SOURCE.read_text(), re.MULTILINE):
        if not hasattr(loaded, name):
            raise OSError(f"the compiled library has no function {name!r}")
    return loaded
