"""Compiled kernels are kept for other processes, and taken only if they are what was kept."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from qunlearn.quant import fuse, kernels, prebuilt, why_not
from qunlearn.quant.operators import Kernel

pytestmark = pytest.mark.skipif(
    bool(why_not()) or prebuilt.processor() is None, reason="no compiler or no Linux here"
)


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What is compiled during a test that starts with an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    flags: list[Any] = []
    build = fuse._build

    def noted(*words: Any) -> Path:
        flags.append(words[1])
        return build(*words)

    monkeypatch.setattr(fuse, "_build", noted)
    start_over()
    yield flags
    start_over()


def start_over() -> None:
    """What another process would know."""
    fuse.library.cache_clear()
    for kernel in vars(kernels).values():
        if isinstance(kernel, Kernel):
            kernel.c_functions.clear()


def rounded() -> torch.Tensor:
    x = torch.linspace(-1, 1, 50)
    words = (x, torch.tensor(0.2), torch.tensor(0.0), -3, 3, False)
    result: torch.Tensor = kernels.round_forward(*words, fused=True)
    assert torch.equal(result, kernels.round_forward(*words, fused=False))
    return result


def kept(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "qunlearn" / "kernels").glob("*"))


def test_a_second_process_compiles_nothing(built: list[Any], tmp_path: Path) -> None:
    rounded()
    assert len(built) == len(kept(tmp_path)) == 1
    start_over()
    rounded()
    fuse.library(torch.float64)
    assert len(built) == len(kept(tmp_path)) == 2  # one for each kind of numbers


@pytest.mark.parametrize("what", ["source", "flags", "version", "processor", "torch"])
def test_whatever_it_was_made_from_is_part_of_its_name(
    what: str, built: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounded()
    start_over()
    if what == "source":
        other = tmp_path / "kernels.c"
        other.write_text(fuse.SOURCE.read_text() + "\n/* another */\n")
        monkeypatch.setattr(fuse, "SOURCE", other)
    elif what == "flags":
        monkeypatch.setattr(fuse, "FLAGS", (*fuse.FLAGS, "-DANOTHER"))
    elif what == "version":
        monkeypatch.setattr(fuse, "_version", lambda *_: "another 1.0")
    elif what == "processor":
        monkeypatch.setattr(prebuilt, "processor", lambda: "another")
    else:
        monkeypatch.setattr(torch, "__version__", "9.9")
    rounded()
    assert len(built) == len(kept(tmp_path)) == 2


@pytest.mark.parametrize("what", ["cut off", "open to others", "in an open folder"])
def test_a_library_that_may_be_anothers_is_never_loaded(
    what: str, built: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounded()
    (path,) = kept(tmp_path)
    if what == "cut off":
        path.write_bytes(path.read_bytes()[:5000])
    elif what == "open to others":
        path.chmod(0o666)
    else:
        path.parent.chmod(0o777)
    loaded: list[str] = []
    load = ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda name: loaded.append(name) or load(name))
    start_over()
    rounded()
    assert len(built) == 2
    assert str(path) not in loaded
    assert len(loaded) == 1


def test_a_library_from_where_nothing_can_be_run_is_made_again(
    built: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounded()
    load = ctypes.CDLL

    def refused(name: str) -> ctypes.CDLL:
        if name.startswith(str(tmp_path)):
            raise OSError("failed to map segment from shared object")
        return load(name)

    monkeypatch.setattr(ctypes, "CDLL", refused)
    start_over()
    rounded()
    assert len(built) == 2


def test_what_cannot_be_told_from_others_is_not_kept(
    built: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prebuilt, "processor", lambda: None)
    rounded()
    assert kept(tmp_path) == []
    monkeypatch.undo()
    assert prebuilt.library_name(b"", ["cc"], "") is None


def test_a_compiler_that_does_not_tell_its_version_still_compiles(
    built: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fuse._run

    def silent(command: list[str], *others: Any) -> str:
        if "--version" in command:
            raise subprocess.CalledProcessError(1, command, stderr="unknown option")
        return run(command, *others)

    monkeypatch.setattr(fuse, "_run", silent)
    rounded()
    assert (len(built), kept(tmp_path)) == (1, [])
