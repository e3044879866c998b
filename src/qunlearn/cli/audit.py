"""`qunlearn audit`: a command for each way of looking further."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from qunlearn.audit.config import AuditBitsConfig
from qunlearn.cli.output import print_json, print_table, say
from qunlearn.cli.settings import Json, RunFolder, with_settings

if TYPE_CHECKING:
    from qunlearn.audit.bits import BitsAudit

app = typer.Typer(no_args_is_help=True)


@app.callback()
def command() -> None:
    """Look further for what a run still remembers.

    Example:
      qunlearn audit bits runs/forgotten --reference runs/retrain
    """


@app.command("bits")
@with_settings(AuditBitsConfig)
def bits(settings: AuditBitsConfig, run: RunFolder, json: Json = False) -> None:
    """See whether what was forgotten comes back when the weights get other bits.

    Shows how many integer codes forgetting changed, layer by layer, and the figures when the
    weights are rounded anew to 2 to 8 bits and to none; beside Retrain, if it is given, treated the
    same. Keeps it in the run's audit.json, for its report.

    Examples:
      qunlearn audit bits runs/forgotten --reference runs/retrain

      qunlearn audit bits runs/forgotten --bits 2,3,32
    """
    from qunlearn.audit import audit_bits

    found = audit_bits(
        run,
        reference=settings.reference,
        data=settings.data,
        factory=settings.model,
        bits=settings.bits,
    )
    if json:
        print_json({"run": str(run), **found.to_json()})
    else:
        print_audit(found)


def print_audit(found: BitsAudit) -> None:
    """Print what the audit found: codes, figures, and the sentence."""
    from qunlearn.report.audits import bits_table, bits_words
    from qunlearn.report.words import declared_words

    if found.changed is None:
        say("How many codes changed is not known: the run before is not available.")
    else:
        layers = found.changed.layers.items()
        rows = [[name or "(whole model)", f"{share:.2f} %"] for name, share in layers]
        rows.append(["all", f"{found.changed.all:.2f} %"])
        print_table(["layer", "codes changed"], rows)
    print_table(*bits_table(found))
    say(bits_words(found))
    if found.declared is not None:
        say(declared_words(found.declared))
