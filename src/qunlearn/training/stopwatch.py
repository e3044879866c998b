"""How long the work itself took, however often it was watched or interrupted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Counts from when it is made; pauses are left out, time before a resume is added."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._added = 0.0

    @property
    def seconds(self) -> float:
        """The time so far."""
        return time.perf_counter() - self._started + self._added

    def add(self, seconds: float) -> None:
        """Count time that was spent elsewhere, as before a resume."""
        self._added += seconds

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the block's time out."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._added -= time.perf_counter() - started
