"""A command in a process of its own, forked with torch loaded: time, memory, output."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from qunlearn.cli.main import main

BUG = 70
"""The exit code of a child whose command raised what the command line does not expect."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended; `code` is None if it had to be killed, `seconds` are the processor's."""

    code: int | None
    seconds: float
    megabytes: float
    printed: bytes


def run(words: list[str], folder: Path, log: Path, seconds: float) -> Outcome:
    """Run `qunlearn WORDS...` in `folder`.

    It is killed if it waits for `seconds` without a break, or computes for ten times as long. The
    clock alone would not do: on a busy machine everything takes long.
    """
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    child = os.fork()
    if not child:
        _be_the_command(words, folder, log)
    busy = time.perf_counter()
    computed = 0.0
    while True:
        ended, status, usage = os.wait4(child, os.WNOHANG)
        if ended:
            break
        now, used, waiting = time.perf_counter(), *_activity(child)
        if used > computed or not waiting:
            busy, computed = now, used
        if now - busy > seconds or computed > 10 * seconds:
            os.killpg(child, signal.SIGKILL)
            os.wait4(child, 0)
            return Outcome(None, computed, 0.0, log.read_bytes())
        time.sleep(0.01)
    code = os.waitstatus_to_exitcode(status)
    computed = usage.ru_utime + usage.ru_stime
    return Outcome(code, computed, usage.ru_maxrss / 1024 - before / (1 << 20), log.read_bytes())


def _activity(process: int) -> tuple[float, bool]:
    """The processor seconds that a process has used, and whether it is waiting for something."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK"), fields[0] in "SD"


def _be_the_command(words: list[str], folder: Path, log: Path) -> None:
    code = BUG
    try:
        os.setsid()
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        os.chdir(folder)
        main(words)
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
