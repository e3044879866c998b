"""The ledger as a table, and as a page that sorts its columns by a click."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from qunlearn.evidence.ledger import Entry
from qunlearn.report.html import counted, render
from qunlearn.report.judge import resurfaced
from qunlearn.runs.metrics import metrics_of
from qunlearn.store.files import write_text
from qunlearn.store.place import named
from qunlearn.store.run import Run

PAGE = "ledger.html"
HEAD = ["reference", "received", "due", "state", "samples", "run"]

SCRIPT = """
const table = document.querySelector("table"), body = table.tBodies[0];
function sort(column) {
  const key = (row) => row.cells[column].textContent.trim();
  const order = (a, b) => key(a).localeCompare(key(b), undefined, {numeric: true});
  const head = table.tHead.rows[0].cells, up = head[column].ariaSort !== "ascending";
  for (const cell of head) cell.ariaSort = "none";
  head[column].ariaSort = up ? "ascending" : "descending";
  body.append(...[...body.rows].sort((a, b) => (up ? order(a, b) : order(b, a))));
}
document.querySelectorAll("thead button").forEach((b, i) => b.addEventListener("click", () => sort(i)));
if (/^#[0-5]$/.test(location.hash)) sort(Number(location.hash[1]));
"""  # noqa: E501
"""Sorts the rows by the column that was clicked, or that the address names, as ledger.html#2."""


def came_back(run: Run) -> list[int]:
    """The numbers of a run's earlier requests whose samples came back."""
    metrics = metrics_of(run)
    if metrics.before is None:
        return []
    parts = [each.part for each in resurfaced(metrics, metrics.before)]
    return [int(part.removeprefix("forget_")) for part in parts]


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
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    text = render(
        "ledger.html.j2",
        head=HEAD,
        rows=list(zip(entries, ledger_rows(entries), strict=True)),
        words=ledger_words(entries),
        today=today.isoformat(),
        script=SCRIPT,
        digest=digest,
    )
    with named(folder):
        write_text(folder / PAGE, text)
    return folder / PAGE
