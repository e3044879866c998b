"""Every request to forget below a folder, and how far it is; nothing is kept of it."""

from __future__ import annotations

import calendar
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Literal, get_args

from qunlearn.data import manifest
from qunlearn.data.manifest import Request
from qunlearn.dates import utc
from qunlearn.errors import UserError
from qunlearn.evidence.erased import ERASED, erased_of
from qunlearn.evidence.family import comparisons_in, key_of, runs_in
from qunlearn.evidence.record import RECORD, read_record
from qunlearn.runs.lines import RequestLine
from qunlearn.runs.provenance import lines_of
from qunlearn.store.layout import MODEL, SPLIT
from qunlearn.store.place import FILE, kind_of
from qunlearn.store.run import Run

State = Literal["unreadable", "open", "missed", "forgotten", "erased", "certified", "resurfaced"]
ORDER: tuple[State, ...] = get_args(State)
UNMET: tuple[State, ...] = ("unreadable", "open", "missed", "forgotten", "resurfaced")
"""States in which a request is not met, and may become overdue."""


@dataclass(frozen=True)
class Judged:
    """How a run that has forgotten is judged.

    Attributes:
        missed: Whether the network was found to remember, or was damaged.
        resurfaced: Which of its earlier requests have come back, counted from 1.
    """

    missed: bool = False
    resurfaced: Collection[int] = ()


@dataclass(frozen=True)
class Entry:
    """One request.

    Attributes:
        reference: What it is called; by default the run's folder.
        received: The day that it was received; where that is not known, that the run was begun.
        due: The day by which it is to be met.
        state: How far it is.
        overdue: Whether it is not met, and the day has passed.
        samples: How many samples it names.
        run: The folder of the run that answers it.
        dated: Whether it is on record when it was received.
    """

    reference: str
    received: str
    due: str
    state: State
    overdue: bool
    samples: int
    run: str
    dated: bool = True


def ledger(
    folder: Path,
    today: date,
    judge: Callable[[Run], Judged],
    days: int | None = None,
) -> list[Entry]:
    """All requests below a folder, those that are due first at the top.

    Args:
        folder: The folder.
        today: The day.
        judge: How a run that has forgotten is judged.
        days: After how many days a request is due; a month by default.
    """
    if not folder.is_dir():
        raise UserError(f"There is no folder {str(folder)!r}; check the path.")
    if days is not None and not 1 <= days <= 3650:
        raise UserError(f"A request cannot be due after {days} days; choose 1 to 3650.")
    answers = _answers(folder, judge)
    entries = [
        _entry(line, answer, folder, today, days) for answer in answers for line in answer.lines
    ]
    return sorted(entries, key=lambda entry: (not entry.overdue, entry.due, entry.reference))


@dataclass(frozen=True)
class Answer:
    """A run that answers requests: whose, how far it is, and when it was begun."""

    path: Path
    lines: tuple[RequestLine, ...]
    state: State
    begun: str


def _answers(folder: Path, judge: Callable[[Run], Judged]) -> list[Answer]:
    """The runs that answer requests; several for the same samples are one answer."""
    compared = list(comparisons_in(folder))
    best: dict[str, Answer] = {}
    resurfaced: set[str] = set()
    unreadable = []
    for path in runs_in(folder):
        if any(path.is_relative_to(each) for each in compared):
            continue
        try:
            answer, requests = _answer(path)
            if requests and Run.is_complete(path):
                judged = judge(Run(path))
                resurfaced |= {key_of(requests[:number]) for number in judged.resurfaced}
                answer = replace(answer, state="missed") if judged.missed else answer
        except UserError:
            unreadable.append(_unreadable(path))
            continue
        if requests:
            key = key_of(requests)
            best[key] = _joined(answer, best.get(key, answer))
    readable = [
        replace(answer, state="resurfaced") if key in resurfaced else answer
        for key, answer in [*best.items(), *_papers(folder)]
    ]
    return [*unreadable, *readable]


def _answer(path: Path) -> tuple[Answer, tuple[Request, ...]]:
    run = Run(path)
    requests = manifest.parse(run.split).requests
    last = requests[-1] if requests else None
    count = len(last.ids) + len(last.retired) if last else 0
    lines = lines_of(run) or (RequestLine(count),)
    if not Run.is_complete(path):
        return Answer(path, lines, "open", _oldest_day(path)), requests
    state: State = "forgotten"
    if erased_of(path) is not None:
        state = "erased"
    if _is_certified(run):
        state = "certified"
    return Answer(path, lines, state, (run.info.begun or "")[:10]), requests


def _unreadable(path: Path) -> Answer:
    """A damaged run, with the requests that its settings still tell."""
    try:
        lines = lines_of(Run(path))
    except UserError:
        lines = ()
    return Answer(path, lines or (RequestLine(0),), "unreadable", _oldest_day(path))


def _oldest_day(path: Path) -> str:
    """The day of the oldest file: when a run was begun that has not said so itself."""
    oldest = min(each.lstat().st_mtime for each in path.iterdir())
    return utc(oldest)[:10]


def _is_certified(run: Run) -> bool:
    """Whether the run has a record that closes the request.

    It must be about the network as it is now, and say that the samples were erased. Whose signature
    it has is for `verify`, which needs a key.
    """
    path = run.path / RECORD
    if kind_of(path) != FILE:
        return False
    record = read_record(path)
    digests = {each.name: each.digest.sha256 for each in record.statement.subject}
    return record.predicate.erased is not None and digests.get(MODEL) == run.info.model_sha256


def _joined(one: Answer, other: Answer) -> Answer:
    """Of two runs for the same samples, the one that got further, with all that is on record."""
    first, second = sorted((other, one), key=lambda each: ORDER.index(each.state), reverse=True)
    lines = (*first.lines, *second.lines)
    on_record = dict.fromkeys(line for line in lines if line.reference or line.received)
    return replace(first, lines=tuple(on_record) or first.lines)


def _papers(folder: Path) -> Iterator[tuple[str, Answer]]:
    """Requests of runs that are gone, since a later request made them go: their papers stay."""
    for path in sorted(folder.rglob(ERASED)):
        if kind_of(path) != FILE or (path.parent / SPLIT).exists():
            continue
        try:
            done = erased_of(path.parent)
        except UserError:
            yield "", _unreadable(path.parent)
            continue
        if done is not None and done.lines:
            certified = kind_of(path.parent / RECORD) == FILE
            state: State = "certified" if certified else "erased"
            yield done.key, Answer(path.parent, done.lines, state, done.forgotten[:10])


def _entry(line: RequestLine, answer: Answer, folder: Path, today: date, days: int | None) -> Entry:
    day = line.received or answer.begun or today.isoformat()
    try:
        received = date.fromisoformat(day)
    except ValueError:
        received = today
    due = month_after(received) if days is None else received + timedelta(days=days)
    place = answer.path.relative_to(folder).as_posix()
    return Entry(
        reference=line.reference or place,
        received=received.isoformat(),
        due=due.isoformat(),
        state=answer.state,
        overdue=answer.state in UNMET and today > due,
        samples=line.samples,
        run=place,
        dated=line.received is not None,
    )


def month_after(day: date) -> date:
    """The same day of the next month, or its last (GDPR Art. 12(3)).

    >>> month_after(date(2026, 1, 31)), month_after(date(2026, 12, 18))
    (datetime.date(2026, 2, 28), datetime.date(2027, 1, 18))
    """
    year, month = day.year + day.month // 12, day.month % 12 + 1
    return date(year, month, min(day.day, calendar.monthrange(year, month)[1]))
