"""`qunlearn forget`."""

from __future__ import annotations

from typing import Annotated

import typer

from qunlearn.cli.output import print_run
from qunlearn.cli.settings import Json, OutFolder, Resume, with_settings
from qunlearn.runs.request import ForgetConfig

MISSED = 3
"""The exit code where everything was done and written, but a target was not met."""

Accept = Annotated[
    bool,
    typer.Option("--accept", metavar="", help="End with exit code 0 even if a target was not met."),
]


@with_settings(ForgetConfig)
def command(
    settings: ForgetConfig,
    out: OutFolder = None,
    resume: Resume = False,
    accept: Accept = False,
    json: Json = False,
) -> None:
    """Make a run's network forget samples, and save the new network.

    A run is a folder that `qunlearn train` or `qunlearn adopt` wrote; it is not changed. For the
    next request, name the new run: samples of earlier requests stay out of what is retained, and
    every evaluation reports their accuracy.

    Exit code 3: the network was saved, but this request missed its target, or samples of an
    earlier request are recognised again. The verdict says by how much, and what to try.

    Examples:
      qunlearn forget runs/original --random 0.1 --out runs/forgotten

      qunlearn forget runs/original --class 3 --method oeu --set alpha=0.5 --out runs/no-threes

      qunlearn forget runs/forgotten --ids more.csv --method ft --epochs 5 --out runs/second

      qunlearn forget runs/original --where "user == 42" --metadata people.csv --out runs/no-42

      qunlearn forget --resume --out runs/no-42
    """
    from qunlearn.report.judge import verdict_of
    from qunlearn.runs.forget import forget_run
    from qunlearn.runs.metrics import metrics_of

    assert out is not None  # with_settings has seen to it
    run = forget_run(settings, out, resume=resume)
    info = run.info
    if info.weights_of is not None:
        print_run(run, json, f"{run.path}: weights unchanged")
        return
    verdict, seconds = verdict_of(metrics_of(run), info.method), info.took("forgetting")
    print_run(run, json, f"{run.path}: {info.method} ({seconds:.0f} s)", verdict)
    if not (verdict.met or accept):
        raise typer.Exit(MISSED)
