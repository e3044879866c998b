"""SIGTERM and SIGHUP end a command as ctrl-C does, with all of its processes."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SMALL, flags
from forked import Started

SECONDS = 120


def started(folder: Path, *words: object) -> Started:
    """A command in a group of its own, as a terminal starts it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        return Started([*map(str, words)], folder, folder / "printed")
    finally:
        signal.signal(signal.SIGHUP, before)


def wait_until(true: Callable[[], object], command: Started) -> None:
    ends = time.monotonic() + SECONDS
    while not true():
        assert command.process.is_alive(), command.log.read_text()
        assert time.monotonic() < ends
        time.sleep(0.05)


def members(group: int) -> list[int]:
    """The processes of a group that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, own = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            except (FileNotFoundError, ProcessLookupError):
                continue
            found += [int(entry.name)] if int(own) == group and state != "Z" else []
    return found


def check_gone(group: int) -> None:
    """No process of a group is left; multiprocessing's helper ends just after the command."""
    ends = time.monotonic() + 10
    while members(group) and time.monotonic() < ends:
        time.sleep(0.05)
    assert not members(group)


def listening(processes: list[int]) -> list[str]:
    """The addresses at which processes wait for connections."""
    inodes = set()
    for process in processes:
        for handle in Path(f"/proc/{process}/fd").iterdir():
            inodes.add(str(handle.readlink()) if handle.is_symlink() else "")
    found = []
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            local, state, inode = (line.split()[i] for i in (1, 3, 9))
            if state == "0A" and f"socket:[{inode}]" in inodes:
                words = bytes.fromhex(local.split(":")[0])
                swapped = struct.pack(
                    f">{len(words) // 4}I", *struct.unpack(f"<{len(words) // 4}I", words)
                )
                found.append(socket.inet_ntop(family, swapped))
    return found


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="sockets are looked up in /proc")
def test_two_processes_listen_to_nobody_else_and_end_by_sigterm(tmp_path: Path) -> None:
    settings = {**SMALL, "model": "cnn", "epochs": 10_000, "devices": 2}
    command = started(tmp_path, "train", *flags(settings), "--out", "run")
    wait_until((tmp_path / "run" / "history.jsonl").exists, command)
    running = members(command.group)
    assert len(running) >= 3
    addresses = listening(running)
    assert addresses  # they do talk to each other
    assert set(addresses) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    os.kill(command.group, signal.SIGTERM)
    code, printed = command.end(SECONDS)
    message = "qunlearn: Interrupted; resume with `qunlearn train --resume --out run`.\n"
    assert (code, printed.endswith(message)) == (1, True), printed
    check_gone(command.group)


@pytest.mark.parametrize("to_all", [False, True])
def test_workers_end_by_sighup(tmp_path: Path, run_folder: Path, to_all: bool) -> None:
    words = "--random 0.2 --methods ga --seeds 2 --workers 2 --threads 1 --out out"
    long = ("--set", "retrain.epochs=9999")
    command = started(tmp_path, "compare", run_folder, *words.split(), *long)
    wait_until(lambda: list(tmp_path.glob("out/**/history.jsonl")), command)
    if to_all:  # as a terminal that is closed
        os.killpg(command.group, signal.SIGHUP)
    else:
        os.kill(command.group, signal.SIGHUP)
    code, printed = command.end(SECONDS)
    message = "qunlearn: Interrupted; resume with `qunlearn compare --resume --out out`.\n"
    assert (code, printed.endswith(message)) == (1, True), printed
    check_gone(command.group)


def test_a_signal_that_is_ignored_stays_so(tmp_path: Path) -> None:
    code = (
        "import signal, sys\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from qunlearn.cli import main\n"
        "main.outcome = lambda words: signal.raise_signal(signal.SIGHUP) or 0\nmain.main([])"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
