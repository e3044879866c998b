"""A progress bar for people; nothing at all when the output is piped."""

from __future__ import annotations

import sys
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


def _bar(shown: bool, *columns: ProgressColumn) -> Bar:
    """A bar on standard error that is silent where nobody watches."""
    return Bar(*columns, console=Console(stderr=True), disable=not (shown and sys.stderr.isatty()))


@contextmanager
def downloading() -> Iterator[Callable[[int, int | None], None]]:
    """A bar for downloads; gives what `load_dataset` wants as `progress`."""
    bar = _bar(
        True, TextColumn("downloading"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    )
    task = bar.add_task("", total=None, visible=False)
    with bar:
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


class Progress:
    """One bar on standard error, with numbers beside it and the time left."""

    def __init__(self, title: str, total: int, shown: bool = True):
        self._bar = _bar(
            shown,
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
        )
        self._task = self._bar.add_task(title, total=total, numbers="")

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
        """So many steps are done."""
        self._bar.advance(self._task, steps)

    def show(self, numbers: Mapping[str, float]) -> None:
        """Put numbers beside the bar."""
        text = "  ".join(f"{name} {value:.3g}" for name, value in numbers.items())
        self._bar.update(self._task, numbers=text)
