"""`qunlearn compare`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from qunlearn.cli.output import print_json, print_text_table, say
from qunlearn.cli.settings import Json, Resume, with_settings
from qunlearn.errors import Failure
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

      qunlearn compare runs/original --random 0.1 --executor ray --address auto --out runs/table
    """
    from qunlearn.report import report_comparison
    from qunlearn.study.compare import compare_run

    assert out is not None  # with_settings has seen to it
    table = compare_run(settings, out)
    page = None if settings.join else report_comparison(out, data=settings.data_path)
    if json:
        print_json(table.to_json())
    else:
        print_comparison(table)
        if page is not None:
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
    """Print a comparison: what it shows in words, the four figures, and the predictions."""
    from qunlearn.report.comparison import answers_of
    from qunlearn.report.rows import LIRA, notes
    from qunlearn.report.tables import (
        MARKS_EXPLAINED,
        comparison_table,
        lira_names,
        predictions_table,
    )

    for answer in answers_of(table):
        say(f"{answer.question} {answer.words}")
    say("\nFor engineers")
    print_text_table(comparison_table(table, paper, title))
    say(MARKS_EXPLAINED)
    for note in notes(table):
        say(note)
    print_text_table(predictions_table(table))
    if lira_names(table):
        say(LIRA)
