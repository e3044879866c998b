"""`qunlearn compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qunlearn.cli.output import print_json, print_parts, say
from qunlearn.cli.settings import Json, Resume, with_settings
from qunlearn.study.config import CompareConfig

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
    from qunlearn.report.printed import comparison_parts
    from qunlearn.study.compare import compare_run, refuse_failed

    assert out is not None  # with_settings has seen to it
    table = compare_run(settings, out)
    page = None if settings.join else report_comparison(out, data=settings.data_path)
    if json:
        print_json(table.to_json())
    else:
        print_parts(comparison_parts(table))
        if page is not None:
            say(f"The page that shows it: {page}")
    refuse_failed(table)
