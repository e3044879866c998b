"""The ledger as a table, and as a page that sorts its columns by a click."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from qunlearn.evidence.ledger import Entry, Judged
from qunlearn.report.html import counted, render
from qunlearn.report.judge import resurfaced, verdict_of
from qunlearn.runs.metrics import metrics_of
from qunlearn.store.files import write_text
from qunlearn.store.place import named
from qunlearn.store.run import Run

PAGE = "ledger.html"
HEAD = ["reference", "received", "due", "state", "samples", "run"]

SCRIPT = "ledger.js"
"""Sorts the rows by the column that was clicked, or that the address names: ledger.html#2."""


def judged(run: Run) -> Judged:
    """How a run that has forgotten is judged: by the verdict that its page shows."""
    metrics = metrics_of(run)
    if metrics.before is None:  # samples were only retired
        return Judged()
    missed = verdict_of(metrics, run.info.method).level not in ("yes", "mostly", "unsure")
    parts = [each.part for each in resurfaced(metrics, metrics.before)]
    return Judged(missed, [int(part.removeprefix("forget_")) for part in parts])


def ledger_rows(entries: Sequence[Entry]) -> list[list[str]]:
    """The entries as rows of a table."""
    return [
        [
            each.reference,
            each.received if each.dated else f"{each.received} (begun)",
            f"{each.due} OVERDUE" if each.overdue else each.due,
            each.state,
            f"{each.samples:,}",
            each.run,
        ]
        for each in entries
    ]


def ledger_words(entries: Sequence[Entry]) -> str:
    """The ledger in a sentence."""
    overdue = sum(entry.overdue for entry in entries)
    return f"{counted(len(entries), 'request')}, {overdue:,} overdue."


def write_ledger(folder: Path, entries: Sequence[Entry], today: date) -> Path:
    """Write the page into the folder."""
    script = render(SCRIPT)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = render(
        "ledger.html.j2",
        head=HEAD,
        rows=list(zip(entries, ledger_rows(entries), strict=True)),
        words=ledger_words(entries),
        today=today.isoformat(),
        digest=digest,
    )
    with named(folder):
        write_text(folder / PAGE, text)
    return folder / PAGE
