"""Commands in a process of their own, forked with torch loaded: codes, memory, output."""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import pkgutil
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, Protocol

from matplotlib.figure import Figure

import qunlearn.cli
from qunlearn.cli.main import main
from qunlearn.report import drawing

BUG = 70
"""The exit code of a child whose command raised what the command line does not expect."""


@dataclass(frozen=True)
class Outcome:
    """How commands ended; `codes` ends before one that had to be killed."""

    codes: list[int]
    megabytes: float
    printed: bytes


def run(commands: list[list[str]], folder: Path, log: Path, seconds: float) -> Outcome:
    """Run `qunlearn WORDS...` in `folder` for some commands, one after another in one process.

    They are killed if they wait for `seconds` without a break, or compute for ten times as long.
    The clock alone would not do: on a busy machine everything takes long.
    """
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    ended_with = log.with_suffix(".codes")
    child = os.fork()
    if not child:
        _be_the_commands(commands, folder, log, ended_with)
    busy = time.perf_counter()
    computed = 0.0
    while True:
        ended, _, usage = os.wait4(child, os.WNOHANG)
        if ended:
            break
        now, used, waiting = time.perf_counter(), *_activity(child)
        if used > computed or not waiting:
            busy, computed = now, used
        if now - busy > seconds or computed > 10 * seconds:
            os.killpg(child, signal.SIGKILL)
            _, _, usage = os.wait4(child, 0)
            break
        time.sleep(0.01)
    codes = [int(code) for code in ended_with.read_text().split()]
    return Outcome(codes, usage.ru_maxrss / 1024 - before / (1 << 20), log.read_bytes())


class Started:
    """A command that runs in a process of its own, at the head of a group of processes."""

    def __init__(self, words: list[str], folder: Path, log: Path):
        context = multiprocessing.get_context("fork")
        arguments = (words, folder, log)
        self.process = context.Process(target=_be_the_command, args=arguments)
        self.log = log
        self.process.start()

    @property
    def group(self) -> int:
        """The group's number, which is the process's."""
        assert self.process.pid is not None
        return self.process.pid

    def end(self, seconds: float) -> tuple[int | None, str]:
        """Wait for the end: the exit code, and what was printed."""
        self.process.join(seconds)
        return self.process.exitcode, self.log.read_text()


class Running(Protocol):
    """`run`, or the same in another process."""

    def __call__(
        self, commands: list[list[str]], folder: Path, log: Path, seconds: float, /
    ) -> Outcome: ...


LOADED = (
    *(f"qunlearn.cli.{each.name}" for each in pkgutil.iter_modules(qunlearn.cli.__path__)),
    *("qunlearn.study.compare", "qunlearn.report", "qunlearn.export.export", "qunlearn.audit.bits"),
    *("qunlearn.export.predict", "qunlearn.study.check", "qunlearn.report.predicted"),
    *("sklearn.svm", "sklearn.datasets", "scipy.stats", "scipy.optimize", "PIL.Image", "filelock"),
    *("matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "matplotlib.figure"),
    *(
        "torch.onnx._internal.exporter._core",
        "torch.export._trace",
        "torch._functorch.partitioners",
    ),
    *("onnxscript.function_libs.torch_lib.ops", "onnxruntime", "torch._dynamo", "rich.table"),
)
"""What commands import on their way, which takes longer than what most of them do."""


@contextmanager
def preloaded() -> Iterator[Running]:
    """`run` from a process that has loaded what commands import, so that no command has to.

    The process is another one: code that is planted in place of such a module would not be seen.
    """
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    server = context.Process(target=_serve, args=(here, there), daemon=True)
    server.start()
    there.close()

    def elsewhere(commands: list[list[str]], folder: Path, log: Path, seconds: float) -> Outcome:
        here.send((commands, folder, log, seconds))
        outcome = here.recv()
        assert isinstance(outcome, Outcome)
        return outcome

    try:
        yield elsewhere
    finally:
        here.close()  # which ends it
        server.join(10)


def _serve(other_end: Connection, requests: Connection) -> None:
    other_end.close()  # or nobody could tell that the first process has closed it
    for name in LOADED:
        importlib.import_module(name)
    drawing.draw("first", "", "", (1, 1), lambda figure: figure.text(0, 0, "a"))  # loads fonts
    Figure.savefig = _blank  # it counts where files are written, not what they show
    gc.freeze()  # or each child would copy the memory that its collector visits
    while True:
        try:
            requests.send(run(*requests.recv()))
        except EOFError:
            return


def _blank(figure: Figure, file: IO[Any], *, format: str, **settings: object) -> None:
    empty = '<svg viewBox="0 0 1 1"></svg>'
    file.write(empty if format == "svg" else b"")


def _activity(process: int) -> tuple[float, bool]:
    """The processor seconds that a process has used, and whether it is waiting for something."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK"), fields[0] in "SD"


def _be_the_command(words: list[str], folder: Path, log: Path) -> None:
    _be_the_commands([words], folder, log, Path(os.devnull), last=True)


def _be_the_commands(
    commands: list[list[str]], folder: Path, log: Path, ended_with: Path, *, last: bool = False
) -> None:
    """Run them and write their exit codes; with `last`, end with the code of the last one."""
    code = BUG
    try:
        os.setsid()
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        with ended_with.open("w", buffering=1) as codes:
            for words in commands:
                os.chdir(folder)
                code = _exit_code(words)
                codes.write(f"{code}\n")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if last else 0)


def _exit_code(words: list[str]) -> int:
    try:
        main(words)
    except SystemExit as stop:
        return int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
    return BUG
