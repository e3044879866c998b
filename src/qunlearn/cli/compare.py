"""`qunlearn compare`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from qunlearn.cli.output import print_json, print_table, say
from qunlearn.cli.settings import Json, Resume, with_settings
from qunlearn.errors import Failure
from qunlearn.metrics.gap import SCORES
from qunlearn.metrics.gap import gaps as metric_gaps
from qunlearn.study.config import CompareConfig

if TYPE_CHECKING:
    from qunlearn.study.paper import PaperRow
    from qunlearn.study.table import Table

OutFolder = Annotated[
    Path | None,
    typer.Option(
        help="The folder of the comparison, new or one to resume; beside the run by default, "
        "as runs/original-compare-random-10."
    ),
]


@with_settings(CompareConfig)
def command(
    settings: CompareConfig, out: OutFolder = None, resume: Resume = False, json: Json = False
) -> None:
    """Compare methods of forgetting with Retrain, over several seeds.

    Makes what is missing (a Retrain for each seed, then every method), and prints the table. If it
    is interrupted, give the same command again, or --resume: finished cells are not made again.

    Examples:
      qunlearn compare runs/original --random 0.1 --methods all --seeds 3

      qunlearn compare runs/original --class 3 --methods calibrated,ft --tune 8 --select oracle
      --workers 2 --out runs/classes

      qunlearn compare runs/original --random 0.3 --settings-from runs/classes/table.json

      qunlearn compare --resume --out runs/classes
    """
    from qunlearn.report import report_comparison
    from qunlearn.study.compare import compare_run

    assert out is not None  # with_settings has seen to it
    table = compare_run(settings, out)
    page = report_comparison(out, data=settings.data_path)
    if json:
        print_json(table.to_json())
    else:
        print_comparison(table)
        say(f"The page that shows it: {page}")
    end(table)


def end(*tables: Table) -> None:
    """Fail if something of a comparison failed; the table is there by then."""
    failed = list(dict.fromkeys(name for table in tables for name in table.failed))
    if failed:
        raise Failure(
            f"Failed: {', '.join(failed)}; everything else is kept, and the same command tries "
            "again."
        )


def print_comparison(
    table: Table, paper: Mapping[str, PaperRow] = MappingProxyType({}), title: str = ""
) -> None:
    """The paper's table: each figure with its gap to Retrain; below ours, what the paper has."""
    from qunlearn.report.rows import interval, notes, runtime

    head = ["method", *SCORES, "AG", "runtime", "trials"]
    rows = []
    for row in table.rows:
        place = table.ranking.place(row.method) if table.ranking else None
        mark = {"best": " *", "runner-up": " +", None: ""}[place]
        ours = {s: interval(value) for s, value in row.figures.items()} | {"AG": interval(row.AG)}
        gaps = {score: gap for score, (gap, _) in row.gaps.items()}
        rows.append([*_line(row.method, ours, gaps, mark), runtime(row), f"{row.trials}"])
        if row.method in paper:
            theirs = paper[row.method]
            figures = {s: f"{value:.2f}" for s, value in theirs.figures.items()}
            line = _line(
                row.method,
                figures | {"AG": f"{theirs.AG:.2f}"},
                metric_gaps(theirs.figures, paper["retrain"].figures),
            )
            rows.append(["  the paper", *line[1:], "", ""])
    rows += [[name, "failed", *[""] * 6] for name in table.failed]
    print_table(head, rows, title)
    say("In brackets: the gap. * best, + runner-up, where that can be told.")
    for note in notes(table):
        say(note)
    print_beside(table)


def _line(
    name: str, figures: Mapping[str, str], gaps: Mapping[str, float], mark: str = ""
) -> list[str]:
    """A name, the four figures with their gaps, and AG; Retrain has no gap to itself."""
    if name == "retrain":
        return [name, *(figures[score] for score in SCORES), ""]
    return [name, *(f"{figures[s]} ({gaps[s]:.2f})" for s in SCORES), figures["AG"] + mark]


def print_beside(table: Table) -> None:
    """What stands beside the four figures: how alike the forgotten samples' predictions are."""
    from qunlearn.report.rows import LIRA, interval

    head = ["on what was forgotten", "entropy", "as Retrain", "divergence"]
    names = next((list(row.lira) for row in table.rows if row.lira), [])
    rows = []
    for row in table.rows:
        line = [row.method, interval(row.entropy["forget"], 3)]
        alike = row.method != "retrain"
        line += [f"{row.agreement['forget'][0]:.1f} %" if alike else ""]
        line += [interval(row.divergence["forget"], 4) if alike else ""]
        line += [interval(row.lira[name], 3) if row.lira else "" for name in names]
        rows.append(line)
    print_table([*head, *(f"LiRA {name}" for name in names)], rows)
    if names:
        say(LIRA)
