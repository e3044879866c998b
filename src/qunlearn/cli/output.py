"""What commands print: a table for people, JSON for machines. Nothing else prints.

What is printed may come from somebody else's file. Characters that command a terminal, or turn the
direction of writing, do not reach it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from qunlearn.characters import UNSAFE, plain

if TYPE_CHECKING:
    from qunlearn.report.tables import TextTable
    from qunlearn.report.verdict import Verdict
    from qunlearn.runs.metrics import RunMetrics
    from qunlearn.store.run import Run


def say(text: object = "", *, error: bool = False) -> None:
    """Print a text of one or more lines, to standard output or standard error."""
    stream = sys.stderr if error else sys.stdout
    encoding = stream.encoding or "utf-8"
    # A letter that the terminal does not have is no reason to fail.
    written = plain(str(text)).encode(encoding, "backslashreplace").decode(encoding)
    print(written, file=stream)


def say_error(sentence: object) -> None:
    """Print what went wrong, on one line."""
    say("qunlearn: " + " ".join(str(sentence).splitlines()), error=True)


def print_json(value: Mapping[str, object]) -> None:
    """Print one JSON document, in which unsafe characters are escaped."""
    text = json.dumps(value, indent=1, ensure_ascii=False, default=str)
    say(UNSAFE.sub(lambda match: json.dumps(match[0])[1:-1], text))


def print_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", left: int = 1
) -> None:
    """Print a table, the first `left` columns to the left and the others to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(title=_cell(title) or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(head):
        table.add_column(_cell(name), justify="left" if i < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(_cell, row))
    console = Console(markup=False)  # names may have brackets
    if not console.is_terminal:
        console.width = 1000  # a file has room for whole lines
    console.print(table)


def print_parts(parts: Iterable[str | TextTable]) -> None:
    """Print sentences and tables that `report/` made."""
    for part in parts:
        if isinstance(part, str):
            say(part)
        else:
            print_text_table(part)


def print_text_table(table: TextTable) -> None:
    """Print a table that `report/` laid out."""
    print_table(table.head, table.rows, table.title, table.left)


def _cell(text: str) -> str:
    return " ".join(plain(text).splitlines())


def print_run(run: Run, json: bool, title: str, verdict: Verdict | None = None) -> None:
    """Print what a run came to: first whether it forgot, in words, then what was measured."""
    from qunlearn.runs.metrics import metrics_of
    from qunlearn.store.typed import untyped

    metrics = metrics_of(run)
    if json:
        judged = {} if verdict is None else {"verdict": asdict(verdict)}
        measured = {"metrics": metrics.to_json(), **judged, **untyped(run.info)}
        print_json({"run": str(run.path), **measured})
        return
    print_measured(metrics, title, verdict)


def print_measured(
    metrics: RunMetrics,
    title: str,
    verdict: Verdict | None = None,
    judged: RunMetrics | None = None,
) -> None:
    """Print a network's measurements; those of one that has forgotten after what they mean.

    Args:
        metrics: What was measured now.
        title: Of what.
        verdict: Whether it forgot.
        judged: What the verdict rests on, if that is more than was measured now.
    """
    if verdict is not None:
        print_verdict(judged or metrics, verdict)
        say("\nFor engineers")
    print_figures(metrics, title)
    if verdict is not None:
        for line in (*verdict.reasons, *verdict.cautions):
            say(line)


def print_verdict(metrics: RunMetrics, verdict: Verdict) -> None:
    """Print whether the model forgot, whether it stayed good, and how certain that is."""
    from qunlearn.report.summary import run_answers

    for answer in run_answers(metrics, verdict):
        say(f"{answer.question} {answer.words}")


def print_figures(metrics: RunMetrics, title: str = "") -> None:
    """Print what was measured: part by part, and the four figures of the field if there are any."""
    from qunlearn.report.scores import parts_table
    from qunlearn.report.words import findings_words

    print_text_table(parts_table(metrics, title))
    if metrics.complete:
        print_scores(metrics)
    for words in findings_words(metrics):
        say(words)


def print_scores(metrics: RunMetrics) -> None:
    """Print FA, RA, TA and MIA beside what they were before, and Retrain's."""
    from qunlearn.report.scores import scores_notes, scores_table

    print_text_table(scores_table(metrics))
    for note in scores_notes(metrics):
        say(note)
