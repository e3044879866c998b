"""What commands print: a table for people, JSON for machines. Nothing else prints.

What is printed may come from somebody else's file. Characters that command a terminal, or turn the
direction of writing, do not reach it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qunlearn.characters import UNSAFE, plain
from qunlearn.parts import LOST, TOLD, part_name

if TYPE_CHECKING:
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


def print_json(value: Mapping[str, Any]) -> None:
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


def _cell(text: str) -> str:
    return " ".join(plain(text).splitlines())


def print_run(run: Run, json: bool, title: str) -> None:
    """Print what a run came to."""
    if json:
        print_json({"run": str(run.path), "metrics": run.metrics, **run.info})
    else:
        print_figures(run.metrics, title)


def print_figures(metrics: Mapping[str, Any], title: str = "") -> None:
    """Print what was measured: part by part, and the four figures of the field if there are any."""
    parts = metrics["parts"]
    before = metrics.get("before", {}).get("parts", {})
    compared = any("agreement" in part for part in parts.values())
    head = ["part", "accuracy", *(["before"] if before else []), "confidence", "entropy"]
    head += ["as Retrain", "divergence"] if compared else []
    rows = []
    for name, part in parts.items():
        row = [part_name(name), f"{part['accuracy']:.2f} %"]
        row += [f"{before[name]['accuracy']:.2f} %"] if before else []
        row += [f"{part['confidence']:.3f}", f"{part['entropy']:.3f}"]
        row += [f"{part['agreement']:.2f} %", f"{part['divergence']:.4f}"] if compared else []
        rows.append([*row, f"{part['samples']:,}"])
    print_table([*head, "samples"], rows, title)
    if "FA" in metrics:
        print_scores(metrics)
    for told in TOLD:
        if told in metrics:
            say(metrics[told]["sentence"])


def print_scores(metrics: Mapping[str, Any]) -> None:
    """Print FA, RA, TA and MIA beside what they were before, and Retrain's."""
    from qunlearn.metrics.membership import least_accuracy, weakest_attack

    names = ("FA", "RA", "TA", "MIA")
    others = {"before": metrics.get("before"), "Retrain": metrics.get("reference")}
    rows = [["this model", *(f"{metrics[name]:.2f}" for name in names)]]
    rows += [[who, *(f"{m[n]:.2f}" for n in names)] for who, m in others.items() if m]
    head = ["", *names]
    if "AG" in metrics:
        rows.append(["gap", *(f"{metrics['gaps'][name]:.2f}" for name in names)])
        for row, value in zip(rows, (f"{metrics['AG']:.2f}", *[""] * 3), strict=False):
            row.append(value)
        head.append("AG")
    print_table(head, rows)
    attacks = metrics.get("attacks", {})
    told = [f"{name} {value:.2f}" for name, value in attacks.items() if name != "confidence"]
    say(f"MIA by other attacks: {', '.join(told)}.")
    accuracy = weakest_attack([metrics, metrics.get("reference") or {}])
    if accuracy is not None:
        counts = (metrics["parts"][part]["samples"] for part in ("retain", "test"))
        needed = least_accuracy(min(counts))
        if accuracy < needed:
            say(
                f"The attack behind MIA is right on {accuracy:.1f} % of trained and unseen "
                f"samples, where one that guesses may be right on {needed:.1f} %: MIA, and its "
                "part of AG, say little here."
            )
    retrain = metrics.get("reference")
    if retrain and retrain["RA"] < metrics["RA"] - LOST:
        say(
            f"Retrain is right on {retrain['RA']:.1f} % of what it was taught, and this model on "
            f"{metrics['RA']:.1f} %: it has not learned as much, and is no fair mark; retrain it "
            "as the network was trained."
        )
    if metrics.get("before") and metrics["RA"] < metrics["before"]["RA"] - LOST:
        say(
            f"The accuracy on what is retained fell from {metrics['before']['RA']:.1f} % to "
            f"{metrics['RA']:.1f} %: the network is damaged; take a gentler setting."
        )
