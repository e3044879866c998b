"""Progress display: a bar on a terminal, one line per minute otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from qunlearn.characters import plain
from qunlearn.dates import utc

EVERY = 60.0
"""Seconds between two lines, and before the first: short work prints none."""


def _bar(shown: bool, *columns: ProgressColumn) -> Bar:
    """A bar on standard error, disabled if that is not a terminal."""
    return Bar(*columns, console=Console(stderr=True), disable=not (shown and sys.stderr.isatty()))


def terminal() -> Console:
    """Standard error, as rich sees it."""
    return Console(stderr=True)


def print_line(text: str) -> None:
    """Print a line of progress to standard error."""
    print(plain(" ".join(text.splitlines())), file=sys.stderr, flush=True)


class Lines:
    """Progress lines where standard error is not a terminal: title, done, total, expected end."""

    _printed = 0.0
    """When this process last printed a line, for any task."""

    def __init__(self, title: str, shown: bool = True):
        self._title = plain(title)
        self._shown = shown and not sys.stderr.isatty()
        self._began = time.monotonic()
        self._first: tuple[float, int] | None = None

    def tell(self, done: int, total: int | None) -> None:
        """Print a line if one is due; the rate is measured since the first call."""
        if not self._shown:
            return
        now = time.monotonic()
        first_time, first_done = self._first = self._first or (now, done)
        if now - max(self._began, Lines._printed) < EVERY:
            return
        Lines._printed = now
        line = f"{self._title}: {done:,}" + (f" of {total:,}" if total else "")
        if total and first_done < done < total:
            remaining = (now - first_time) * (total - done) / (done - first_done)
            line += f", expected to end at {utc(time.time() + remaining)}"
        print(line, file=sys.stderr, flush=True)


@contextmanager
def downloading() -> Iterator[Callable[[int, int | None], None]]:
    """Progress display for downloads; yields the `progress` argument of `load_dataset`."""
    bar = _bar(
        True, TextColumn("downloading"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    )
    task = bar.add_task("", total=None, visible=False)
    lines = Lines("downloading, in bytes")

    def show(done: int, total: int | None) -> None:
        bar.update(task, completed=done, total=total, visible=True)
        lines.tell(done, total)

    with bar:
        yield show


class Progress:
    """A progress bar on standard error with metrics and remaining time; or progress lines."""

    def __init__(self, title: str, total: int, shown: bool = True):
        self._bar = _bar(
            shown,
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
        )
        self._task = self._bar.add_task(plain(title), total=total, numbers="")
        self._lines = Lines(title, shown)
        self._done, self._total = 0, total

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def advance(self, steps: int = 1) -> None:
        """Advance by a number of steps."""
        self._done += steps
        self._bar.advance(self._task, steps)
        self._lines.tell(self._done, self._total)

    def show(self, numbers: Mapping[str, float]) -> None:
        """Show metrics beside the bar."""
        text = "  ".join(f"{name} {value:.3g}" for name, value in numbers.items())
        self._bar.update(self._task, numbers=text)
