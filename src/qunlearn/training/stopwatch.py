"""Measures working time, without pauses and across resumed runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Elapsed time since creation, without pauses, plus time before a resume."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._added = 0.0

    @property
    def seconds(self) -> float:
        """Elapsed seconds."""
        return time.perf_counter() - self._started + self._added

    def add(self, seconds: float) -> None:
        """Add time that was spent before a resume."""
        self._added += seconds

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time of the block."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._added -= time.perf_counter() - started
