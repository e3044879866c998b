"""What commands print: a table for people, JSON for machines. Nothing else prints.

What is printed may come from somebody else's file. Characters that command a terminal, or turn the
direction of writing, do not reach it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from qunlearn.characters import UNSAFE, plain
from qunlearn.parts import LOST, part_name

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
    say(UNSAFE.sub(lambda found: json.dumps(found[0])[1:-1], text))


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


def print_text_table(table: TextTable) -> None:
    """Print a table that `report/` laid out."""
    print_table(table.head, table.rows, table.title)


def _cell(text: str) -> str:
    return " ".join(plain(text).splitlines())


def print_run(run: Run, json: bool, title: str, verdict: Verdict | None = None) -> None:
    """Print what a run came to, and whether it forgot."""
    from qunlearn.runs.metrics import metrics_of
    from qunlearn.store.typed import untyped

    metrics = metrics_of(run)
    if json:
        judged = {} if verdict is None else {"verdict": asdict(verdict)}
        measured = {"metrics": metrics.to_json(), **judged, **untyped(run.info)}
        print_json({"run": str(run.path), **measured})
        return
    print_figures(metrics, title)
    if verdict is not None:
        print_verdict(verdict)


def print_verdict(verdict: Verdict) -> None:
    """Print whether the model forgot, what that rests on, and how far it can be trusted."""
    say(f"Did the model forget? {verdict.answer}")
    for line in (*verdict.reasons, *verdict.cautions):
        say(line)


def print_figures(metrics: RunMetrics, title: str = "") -> None:
    """Print what was measured: part by part, and the four figures of the field if there are any."""
    from qunlearn.report.words import findings_words

    before = {} if metrics.before is None else metrics.before.parts
    compared = metrics.reference is not None
    head = ["part", "accuracy", *(["before"] if before else []), "confidence", "entropy"]
    head += ["as Retrain", "divergence"] if compared else []
    rows = []
    for name, part in metrics.parts.items():
        row = [part_name(name), f"{part.accuracy:.2f} %"]
        row += [f"{before[name].accuracy:.2f} %"] if before else []
        row += [f"{part.confidence:.3f}", f"{part.entropy:.3f}"]
        row += [f"{part.agreement:.2f} %", f"{part.divergence:.4f}"] if compared else []
        rows.append([*row, f"{part.samples:,}"])
    print_table([*head, "samples"], rows, title)
    if metrics.complete:
        print_scores(metrics)
    for words in findings_words(metrics):
        say(words)


def print_scores(metrics: RunMetrics) -> None:
    """Print FA, RA, TA and MIA beside what they were before, and Retrain's."""
    from qunlearn.metrics.gap import SCORES
    from qunlearn.metrics.membership import REPORTED, least_accuracy, weakest_attack

    before, retrain = metrics.before, metrics.reference
    models = {"this model": metrics, "before": before, "Retrain": retrain}
    figures = {name: model.figures for name, model in models.items() if model is not None}
    if retrain is not None:
        figures["gap"] = metrics.gaps
    rows = [[name, *(f"{each[score]:.2f}" for score in SCORES)] for name, each in figures.items()]
    head = ["", *SCORES]
    if retrain is not None:
        rows = [[*rows[0], f"{metrics.AG:.2f}"], *([*row, ""] for row in rows[1:])]
        head.append("AG")
    print_table(head, rows)
    others = [f"{name} {value:.2f}" for name, value in metrics.attacks.items() if name != REPORTED]
    say(f"MIA with other attack features: {', '.join(others)}.")
    accuracy = weakest_attack(m.attack_accuracy for m in (metrics, retrain) if m is not None)
    needed = least_accuracy(min(metrics.parts[part].samples for part in ("retain", "test")))
    if accuracy is not None and accuracy < needed:
        say(
            f"The membership attack is no better than guessing: its accuracy is {accuracy:.1f} %, "
            f"and {needed:.1f} % are needed to beat chance. Ignore MIA, and its part of AG, here."
        )
    if retrain is not None and retrain.RA < metrics.RA - LOST:
        say(
            f"Retrain is right on {retrain.RA:.1f} % of the samples it was trained on, this model "
            f"on {metrics.RA:.1f} %: it has not learned as much, and is no fair reference; retrain "
            "it as the network was trained."
        )
    if before is not None and metrics.RA < before.RA - LOST:
        say(
            f"The accuracy on what is retained fell from {before.RA:.1f} % to {metrics.RA:.1f} %: "
            "the network is damaged; take a gentler setting."
        )
