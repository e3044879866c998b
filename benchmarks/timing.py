"""Two things timed by turns, and how many times as long the one takes as the other."""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

Work = Callable[[], object]


@dataclass(frozen=True)
class Ratio:
    """This / reference: the median over the repeats, and the quartiles."""

    name: str
    reference: str
    median: float
    lower: float
    upper: float
    repeats: int
    target: float | None = None

    def __str__(self) -> str:
        target = "" if self.target is None else f"≤ {self.target:g}"
        spread = f"[{self.lower:.3f}, {self.upper:.3f}]"
        return f"{self.median:7.3f}  {spread:<16} {target:<7} {self.name} / {self.reference}"


def seconds(work: Work) -> float:
    """Processor time: what other programs take in between is not counted."""
    started = time.process_time()
    work()
    return time.process_time() - started


def by_turns(
    name: str,
    this: Work,
    reference: str,
    other: Work,
    repeats: int,
    target: float | None = None,
) -> Ratio:
    """Both once to warm up, then by turns: whatever else the machine does hits both."""
    this(), other()
    return spread(name, reference, [seconds(this) / seconds(other) for _ in range(repeats)], target)


def spread(name: str, reference: str, ratios: list[float], target: float | None = None) -> Ratio:
    """The median and the quartiles of some ratios."""
    # Quartiles want two points at least.
    points = ratios * 2 if len(ratios) == 1 else ratios
    lower, median, upper = statistics.quantiles(points, n=4, method="inclusive")
    return Ratio(name, reference, median, lower, upper, len(ratios), target)


def memory_events(work: Work) -> list[int]:
    """The bytes that tensors took (above 0) and released (below 0) while a function ran."""
    with torch.profiler.profile(profile_memory=True) as profile:
        result = work()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    del result
    memory = [(e["ts"], e["args"]["Bytes"]) for e in events if e["name"] == "[memory]"]
    return [size for _, size in sorted(memory)]


def peak_bytes(work: Work) -> int:
    """The most memory that tensors took, beyond what they took before."""
    work()
    return max(itertools.accumulate(memory_events(work)))


def saved_bytes(work: Work) -> int:
    """The memory that is still taken when a function has returned what it returns."""
    work()
    return sum(memory_events(work))
