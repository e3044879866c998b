"""Memory that is freed between steps is kept, and given back in the end."""

import sys

import pytest
import torch

from qunlearn.training.memory import keeping_memory

resource = pytest.importorskip("resource")
linux = pytest.mark.skipif(sys.platform != "linux", reason="a switch of glibc")
PIECES, SIZE = 32, 1 << 20  # 128 MB of floats: more than any C library keeps by itself


def pages_fetched() -> int:
    """How many pages of memory the system must hand out for 128 MB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    pieces = [torch.zeros(SIZE) for _ in range(PIECES)]
    del pieces
    found: int = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    return found


@linux
def test_freed_memory_is_kept_within_the_block_and_given_back_after_it() -> None:
    with keeping_memory():
        pages_fetched()
        assert pages_fetched() < 4096  # of 32,768
    assert pages_fetched() > 10_000


def test_an_error_goes_through_and_the_next_block_works(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError), keeping_memory():
        _ = 1 / 0
    monkeypatch.setattr("qunlearn.training.memory.sys.platform", "win32")
    with keeping_memory():
        assert float(torch.ones(2).sum()) == 2
