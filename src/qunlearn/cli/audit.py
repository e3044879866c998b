"""`qunlearn audit`: a command for each way of looking further."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from qunlearn.audit.config import AuditBitsConfig
from qunlearn.cli.output import print_json, print_table, say
from qunlearn.cli.settings import Json, RunFolder, with_settings

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
        print_json({"run": str(run), **found})
    else:
        print_audit(found)


def print_audit(found: Mapping[str, Any]) -> None:
    """Print what the audit found: codes, figures, and the sentence."""
    if found["changed"] is None:
        say("How many codes changed is not known: the run before is not at hand.")
    else:
        layers = found["changed"]["layers"].items()
        rows = [[name or "(whole model)", f"{share:.2f} %"] for name, share in layers]
        rows.append(["all", f"{found['changed']['all']:.2f} %"])
        print_table(["layer", "codes changed"], rows)
    names = ["FA", "RA", "TA", "MIA", *(["AG"] if "reference" in found else [])]
    head = [
        "bits of the weights",
        *names,
        *(["Retrain's FA", "MIA"] if "reference" in found else []),
    ]
    rows = []
    for width, row in [("as trained", found["trained"]), *found["rows"].items()]:
        cells = [width_name(width), *(f"{row[name]:.2f}" for name in names)]
        if "reference" in found:
            mark = found["reference"]
            other = mark["rows"].get(width, mark["trained"])
            cells += [f"{other['FA']:.2f}", f"{other['MIA']:.2f}"]
        rows.append(cells)
    print_table(head, rows)
    say(found["verdict"])
    if "declared" in found:
        say(found["declared"]["sentence"])


def width_name(width: str) -> str:
    """What people call a width.

    >>> width_name("4"), width_name("32")
    ('4', 'full precision')
    """
    return "full precision" if width == "32" else width
