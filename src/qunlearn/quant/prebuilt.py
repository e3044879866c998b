"""Compiled kernels that are kept in the user's cache, so that a process need not compile its own.

A library is found by all that it was made from: source, flags, compiler and processor. It is loaded
only from a folder that nobody else can write to.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from qunlearn.store.private import load_private, private_folder, save_private

FOLDER = "kernels"

PROCESSOR = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    *("Features", "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"),
)
"""What Linux says of a processor that decides which instructions a compiler uses."""


@cache
def processor() -> str | None:
    """Which instructions this processor knows; None where the system does not say."""
    try:
        first, *_ = Path("/proc/cpuinfo").read_text().split("\n\n")
    except OSError:
        return None
    facts = dict(line.split(":", 1) for line in first.splitlines() if ":" in line)
    known = {key.strip(): value.strip() for key, value in facts.items() if key.strip() in PROCESSOR}
    return json.dumps(known, sort_keys=True) if known.keys() & {"flags", "Features"} else None


def library_name(source: bytes, command: Sequence[str], version: str) -> str | None:
    """The name of what a command makes of a source; None if it cannot be told from others."""
    instructions = processor()
    if instructions is None or not version.strip():
        return None
    made_from = [source.hex(), [*command], version, instructions]
    machine = [platform.machine(), platform.libc_ver(), torch.__version__]
    return hashlib.sha256(json.dumps([made_from, machine]).encode()).hexdigest()


def find_library(name: str | None) -> Path | None:
    """The path of a kept library, once it is known to be ours and complete."""
    folder = private_folder(FOLDER) if name else None
    return load_private(folder, name) if folder and name else None


def keep_library(name: str | None, path: Path) -> None:
    """Keep a library that has proved that it can be loaded."""
    folder = private_folder(FOLDER) if name else None
    if folder and name:
        save_private(folder, name, path.read_bytes())
