"""`qunlearn erase`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from qunlearn.cli.output import print_json, say
from qunlearn.cli.settings import Json, RunFolder
from qunlearn.errors import UserError

DryRun = Annotated[bool, typer.Option("--dry-run", help="List what would be erased, and stop.")]
Yes = Annotated[bool, typer.Option("--yes", help="Erase without asking.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Also erase the samples from this .npz file or image folder."),
]
Cascade = Annotated[
    bool,
    typer.Option("--cascade", help="Also clean or delete runs that others may need."),
]
Within = Annotated[
    Path | None,
    typer.Option("--within", help="Where to look for other runs; by default beside the run."),
]


def command(
    run: RunFolder,
    dry_run: DryRun = False,
    yes: Yes = False,
    data: Data = None,
    cascade: Cascade = False,
    within: Within = None,
    json: Json = False,
) -> None:
    """Erase the samples that a run has forgotten from everything around it.

    Deletes the runs in the same folder whose networks still know the samples, and comparison cells;
    cleans those that have forgotten them of ids, hashes, outputs and reports. The run itself stays
    usable. Lists what it cannot reach. If it is killed, give the same command again.

    Examples:
      qunlearn erase runs/no-42 --dry-run

      qunlearn erase runs/no-42 --data people.npz --yes
    """
    from qunlearn.evidence.erase import erase
    from qunlearn.evidence.plan import pending, plan_erasing
    from qunlearn.report.erasure import erased_words, left_words, plan_words

    begun = pending(run, within=within, data=data)
    plan = begun or plan_erasing(run, within=within, data=data)
    words = plan_words(plan, resumed=begun is not None)
    listed = {"removed": list(plan.removed), "cleaned": list(plan.cleaned)}
    listed |= {"left": [left_words(left) for left in plan.left], "cascade": list(plan.cascade)}
    listed |= {"outdated": list(plan.outdated)}
    if plan.cascade and not (cascade or dry_run or begun):
        raise UserError(
            f"Other runs need what would be erased: {', '.join(plan.cascade)}; see what would "
            "become of them with --dry-run, and add --cascade to do it."
        )
    if not json:
        for line in words:
            say(line)
    if dry_run:
        if json:
            print_json({"run": str(run), "dry_run": True, **listed})
        elif plan.cascade:
            say(f"Needs --cascade: {', '.join(plan.cascade)}.")
        return
    if not yes and not (sys.stdin.isatty() and typer.confirm("Erase this for good?")):
        raise UserError("Nothing was erased: confirm it with --yes.")
    done = erase(run, plan)
    if json:
        print_json({"run": str(run), "completed": done.completed, **listed})
    else:
        say(erased_words(done))
