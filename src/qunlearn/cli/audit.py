"""`qunlearn audit`: a command for each audit that is registered."""

from __future__ import annotations

import inspect
from pathlib import Path

import typer

from qunlearn.audit import AuditAllConfig, AuditRow, Finding, audit_all, audit_run, audits
from qunlearn.audit.config import AuditConfig
from qunlearn.audit.shadow import ShadowConfig
from qunlearn.cli.help import Command, Group
from qunlearn.cli.output import print_json, print_parts
from qunlearn.cli.settings import Json, RunFolder, with_settings
from qunlearn.study.config import MakePoolConfig

app = typer.Typer(cls=Group, no_args_is_help=True)

MAKING = {"pool": MakePoolConfig}
"""Settings of audits that also say where what an audit needs is made."""


@app.callback()
def command() -> None:
    """Look further for what a run still remembers.

    Examples:
      qunlearn audit all runs/forgotten --reference runs/retrain --budget 10m

      qunlearn audit relearn runs/forgotten
    """


def add(name: str) -> None:
    """Add the command of an audit."""
    audit = audits[name]
    config: type[AuditConfig] = MAKING.get(name, audit.config)

    def called(settings: AuditConfig, run: RunFolder, json: Json = False) -> None:
        prepare(settings, run)
        result = audit_run(name, run, settings)
        if json:
            print_json({"run": str(run), **result.to_json()})
        else:
            print_finding(result.finding, result.row)

    examples = [f"  qunlearn audit {name} runs/forgotten {flags}" for flags in audit.examples]
    paragraph = inspect.cleandoc(audit.help) + " Kept in the run's audit.json, for its report."
    called.__doc__ = "\n\n".join([audit.summary, paragraph, "Examples:", *examples])
    app.command(name, cls=Command)(with_settings(config)(called))


for each in audits:
    add(each)


def prepare(settings: AuditConfig, run: Path) -> None:
    """Make what an audit needs beside the run: the networks of a pool, a shadow pair."""
    if isinstance(settings, ShadowConfig) and settings.shadow:
        from qunlearn.study.pool import make_shadow

        make_shadow(run, settings)
    if isinstance(settings, MakePoolConfig):
        from qunlearn.study.pool import make_pool

        make_pool(run, settings)


def print_finding(finding: Finding, row: AuditRow) -> None:
    """Print what an audit found: its tables, its sentences, and its outcome."""
    from qunlearn.report import audit_table as audit_table  # registers how findings are shown
    from qunlearn.report.audits import details, outcome_words

    shown = details(finding)
    print_parts([*shown.tables, *shown.words, outcome_words(row)])


@app.command("all", cls=Command)
@with_settings(AuditAllConfig)
def every(settings: AuditAllConfig, run: RunFolder, json: Json = False) -> None:
    """Run every audit that fits a time budget, those that tell most first.

    Ends with one table: attack, what it needs, result, interval and verdict (pass, fail, cannot be
    told). What does not fit is listed with the time it would take. Kept in the run's audit.json,
    for its report.

    Examples:
      qunlearn audit all runs/forgotten --reference runs/retrain --budget 10m

      qunlearn audit all runs/forgotten
    """
    from qunlearn.report.audit_table import printed_audits
    from qunlearn.store.typed import untyped

    table = audit_all(run, settings)
    if json:
        print_json({"run": str(run), **untyped(table)})
    else:
        print_parts(printed_audits(table.rows))
