"""`qunlearn ledger`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from qunlearn.cli.output import print_json, print_table, say
from qunlearn.cli.settings import Json
from qunlearn.errors import Failure

Folder = Annotated[Path, typer.Argument(help="The folder that the runs are in.")]
Days = Annotated[
    int | None, typer.Option("--days", help="Requests are due after N days; by default a month.")
]


def command(folder: Folder, days: Days = None, json: Json = False) -> None:
    """List every request to forget below a folder, when it is due, and how far it is.

    Read from the run folders and records each time; there is no database. Writes ledger.html into
    the folder, except with --json. Exit code 0: nothing is overdue. 1: something is.

    Examples:
      qunlearn ledger runs

      qunlearn ledger runs --json --days 30
    """
    from qunlearn.evidence.ledger import ledger
    from qunlearn.report.ledger import HEAD, judged, ledger_rows, ledger_words, write_ledger
    from qunlearn.store.typed import untyped

    today = datetime.now(UTC).date()
    entries = ledger(folder, today, judged, days)
    overdue = [entry.reference for entry in entries if entry.overdue]
    if json:
        print_json({"folder": str(folder), "requests": [untyped(entry) for entry in entries]})
    else:
        print_table(HEAD, ledger_rows(entries), left=4)
        say(ledger_words(entries))
        say(f"{write_ledger(folder, entries, today)}: the same as a page.")
    if overdue:
        raise Failure(f"Overdue: {', '.join(overdue)}.")
