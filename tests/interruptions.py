"""Kills commands at given instants and resumes them, in a process that tests fork.

It has everything loaded and forks a child for each command, so that a kill costs no start-up. All
compute with one thread, because several would not survive a fork.

    harness(FOLDER, INSTANTS, SEED, COMMAND)

makes COMMAND whole in FOLDER/whole, and then INSTANTS times in FOLDER/0, FOLDER/1 and so on, killed
at a random instant and resumed, again and again until it gets to its end. The word OUT stands for
the folder.
"""

import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import sklearn.svm  # noqa: F401

import qunlearn.cli.compare
import qunlearn.report
import qunlearn.study.compare  # noqa: F401
from qunlearn.cli.main import main
from qunlearn.data import load_dataset
from qunlearn.training import checkpoint


def run(words: list[str], kill_after: float | None = None) -> bool:
    """Run a command in a child; whether it got to its end, which must be a good one."""
    child = os.fork()
    if not child:
        be(words)
    if kill_after is not None:
        ends = time.monotonic() + kill_after
        while time.monotonic() < ends:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return finished(words, status)
            time.sleep(0.001)
        os.kill(child, signal.SIGKILL)
    return finished(words, os.waitpid(child, 0)[1])


def be(words: list[str]) -> None:
    """Be the command, in a child, and end as it does."""
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        main(words)
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def finished(words: list[str], status: int) -> bool:
    """Whether a child ended well; ending badly by itself is an error."""
    if os.WIFSIGNALED(status):
        return False
    if os.WEXITSTATUS(status):
        sys.exit(f"{' '.join(words)} ended with {os.WEXITSTATUS(status)}")
    return True


def harness(folder: Path, instants: int, seed: int, command: list[str]) -> None:
    """See the module's words."""
    # The state is kept after each step, so that every one of them is gone on from.
    checkpoint.EVERY, checkpoint.SHARE = 0.0, 1e9
    load_dataset("digits")
    chance = random.Random(seed)

    def words(out: Path) -> list[str]:
        return [str(out) if word == "OUT" else word for word in command]

    started = time.monotonic()
    run(words(folder / "whole"))
    seconds = time.monotonic() - started
    kills = 0
    for i in range(instants):
        out = folder / str(i)
        if not run(words(out), chance.uniform(0, seconds)):
            kills += 1
            # Half of the time a second kill comes, while it goes on.
            if chance.random() < 0.5 and run([*words(out), "--resume"], chance.uniform(0, seconds)):
                continue
            run([*words(out), "--resume"])
    print(f"{kills} of {instants} were killed")


def alone(log: Path, folder: Path, instants: int, seed: int, command: list[str]) -> None:
    """Be the harness, in a process that was forked for it, and end; `log` gets what is printed."""
    code = 1
    try:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        harness(folder, instants, seed, command)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
