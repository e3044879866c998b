"""The cache of compiled kernels in the user's cache folder.

A library is named by the hash of everything it was compiled from: source, flags, compiler and
processor. It is loaded only from a folder that no other user can write to.
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
"""The fields of /proc/cpuinfo that decide which instructions a compiler uses."""


@cache
def processor() -> str | None:
    """The processor's model and instruction sets; None where /proc/cpuinfo does not list them."""
    try:
        first, *_ = Path("/proc/cpuinfo").read_text().split("\n\n")
    except OSError:
        return None
    facts = dict(line.split(":", 1) for line in first.splitlines() if ":" in line)
    known = {key.strip(): value.strip() for key, value in facts.items() if key.strip() in PROCESSOR}
    return json.dumps(known, sort_keys=True) if known.keys() & {"flags", "Features"} else None


def library_name(source: bytes, command: Sequence[str], version: str) -> str | None:
    """The content hash of a compiled library; None if compiler or processor are unknown."""
    instructions = processor()
    if instructions is None or not version.strip():
        return None
    build = [source.hex(), [*command], version, instructions]
    machine = [platform.machine(), platform.libc_ver(), torch.__version__]
    return hashlib.sha256(json.dumps([build, machine]).encode()).hexdigest()


def cached_library(name: str | None) -> Path | None:
    """The path of a cached library, checked to be complete and written by this user."""
    folder = private_folder(FOLDER) if name else None
    return load_private(folder, name) if folder and name else None


def save_library(name: str | None, path: Path) -> None:
    """Save a library to the cache; the caller has loaded it successfully."""
    folder = private_folder(FOLDER) if name else None
    if folder and name:
        save_private(folder, name, path.read_bytes())
