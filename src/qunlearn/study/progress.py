"""Progress over a whole study: cells done, which run where, and when the last is expected."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from qunlearn.characters import plain
from qunlearn.dates import utc
from qunlearn.study.executors.base import Event, Finished, Lost, Started
from qunlearn.training.progress import EVERY, Progress, print_line, terminal

MOST_ROWS = 20
"""Cells that the live table lists; of more only the number is shown."""

MOST_NAMED = 4
"""Cells that a line names as running."""


@dataclass
class Counts:
    """What is known of a study's cells; turns into a table or into a line.

    Attributes:
        title: What is being made.
        total: How many cells there are.
        done: How many are finished.
        clock: The time, in seconds.
    """

    title: str
    total: int
    done: int
    clock: Callable[[], float] = time.time
    running: dict[str, tuple[str, float]] = field(default_factory=dict)
    lost: int = 0
    failed: int = 0

    def __post_init__(self) -> None:
        self._began, self._first = self.clock(), self.done

    def add(self, event: Event) -> None:
        """Take note of an event."""
        name = cell_name(event)
        if isinstance(event, Started):
            self.running[name] = event.where, self.clock()
            return
        self.running.pop(name, None)
        if isinstance(event, Lost):
            self.lost += 1
        else:
            self.done += 1
            self.failed += event.failure is not None

    @property
    def expected_end(self) -> float | None:
        """When the last cell is done if they go on at this rate; None before one is."""
        finished = self.done - self._first
        if not finished or self.done == self.total:
            return None
        return self.clock() + (self.clock() - self._began) * (self.total - self.done) / finished

    @property
    def summary(self) -> str:
        """Cells done, and when the last is expected."""
        text = f"{self.title}: {self.done:,} of {self.total:,} cells"
        text += f", {self.failed:,} failed" if self.failed else ""
        text += f", restarted after a node or worker died: {self.lost:,}" if self.lost else ""
        end = self.expected_end
        return text + (f", expected to end at {utc(end)}" if end is not None else "")

    @property
    def line(self) -> str:
        """The summary, with what runs where."""
        names = [f"{name} on {where}" for name, (where, _) in self.running.items()]
        unnamed = len(names) - MOST_NAMED
        shown = ", ".join(names[:MOST_NAMED]) + (f" and {unnamed:,} more" if unnamed > 0 else "")
        return self.summary + (f"; running: {shown}" if names else "")

    def table(self) -> Group:
        """The summary, and below it the live table: a row for each cell that is running."""
        table = Table(pad_edge=False, box=None)
        for head in ("running", "on", "for"):
            table.add_column(head, justify="left")
        now = self.clock()
        for name, (where, since) in list(self.running.items())[:MOST_ROWS]:
            table.add_row(plain(name), plain(where), f"{now - since:.0f} s")
        if len(self.running) > MOST_ROWS:
            table.add_row(f"and {len(self.running) - MOST_ROWS:,} more", "", "")
        return Group(Text(plain(self.summary)), table)  # a table's title is as narrow as the table


class StudyProgress:
    """Shows `Counts`: a live table in a terminal, a line each minute where there is none.

    Where cells are made in this process, their own bars are shown below one of the study's.
    """

    def __init__(self, title: str, total: int, done: int, out_of_process: bool):
        self.counts = Counts(title, total, done)
        shown = done < total
        self._bar = None if out_of_process else Progress(title, total, shown)
        if self._bar is not None:
            self._bar.advance(done)
        console = terminal()
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._table = out_of_process and shown and console.is_terminal
        self._lines = out_of_process and shown and not console.is_terminal
        self._printed = time.monotonic()

    def __enter__(self) -> StudyProgress:
        if self._bar is not None:
            self._bar.__enter__()
        if self._table:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.__exit__(kind, error, trace)
        if self._table:
            self._live.stop()

    def add(self, event: Event) -> None:
        """Show an event."""
        self.counts.add(event)
        if self._bar is not None and isinstance(event, Finished):
            self._bar.show({f"{event.job.method} seed": event.job.seed})
            self._bar.advance()
        if isinstance(event, Lost) and self._lines:
            print_line(f"{cell_name(event)} on {event.where}: {event.why}; it is made again")

    def refresh(self) -> None:
        """Draw the table again; print a line if one is due."""
        if self._table:
            self._live.update(self.counts.table(), refresh=True)
        if self._lines and time.monotonic() - self._printed >= EVERY:
            self._printed = time.monotonic()
            print_line(self.counts.line)


def cell_name(event: Event) -> str:
    """What a cell is called in the display."""
    return f"{event.job.method} {event.job.path.name}"
