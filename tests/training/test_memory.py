"""Memory that is freed between steps is kept, and given back in the end."""

import sys
from pathlib import Path

import pytest
import torch

from qunlearn.training.memory import keeping_memory

linux = pytest.mark.skipif(sys.platform != "linux", reason="a switch of glibc")
PIECES, SIZE = 64, 1 << 20  # 256 MB of floats: more than glibc keeps by itself


def kept() -> float:
    """How many MB the process has when it has taken 256 MB and freed them, beyond what it had."""
    before = resident()
    pieces = [torch.ones(SIZE) for _ in range(PIECES)]
    assert resident() - before > 200
    del pieces
    return resident() - before


def resident() -> float:
    """The process's memory in MB."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


@linux
def test_freed_memory_is_kept_within_the_outermost_block_and_given_back_after_it() -> None:
    before = resident()
    with keeping_memory():
        with keeping_memory():
            pass
        assert kept() > 200
    assert resident() - before < 100


def test_an_error_goes_through_and_other_systems_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ZeroDivisionError), keeping_memory():
        _ = 1 / 0
    monkeypatch.setattr("qunlearn.training.memory.sys.platform", "win32")
    with keeping_memory():
        assert float(torch.ones(2).sum()) == 2
