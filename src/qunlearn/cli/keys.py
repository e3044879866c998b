"""`qunlearn keys`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qunlearn.cli.help import Command, Group
from qunlearn.cli.output import print_json, say
from qunlearn.cli.settings import Json

app = typer.Typer(cls=Group, no_args_is_help=True)

KeyFile = Annotated[Path, typer.Argument(help="The file of the private key, such as officer.pem.")]
Kind = Annotated[str, typer.Option("--kind", help="ed25519, or ecdsa (on the curve P-256).")]
Days = Annotated[int, typer.Option("--days", help="For how many days it is valid.")]


@app.callback()
def command() -> None:
    """Make a key pair that signs records.

    Example:
      qunlearn keys new officer.pem
    """


@app.command("new", cls=Command)
def new(path: KeyFile, kind: Kind = "ed25519", days: Days = 730, json: Json = False) -> None:
    """Make a key pair: the private key, and beside it the public key and its certificate.

    Only you can read the private key (mode 0600). Hand out the .pub or .crt file.

    Examples:
      qunlearn keys new officer.pem

      qunlearn keys new officer.pem --kind ecdsa --days 365
    """
    from qunlearn.evidence.keys import new_keys
    from qunlearn.store.typed import untyped

    files = new_keys(path, kind=kind, days=days)
    if json:
        print_json(untyped(files))
        return
    say(f"{files.private}: the private key; keep it to yourself, and a copy in a safe place.")
    say(f"{files.public}: the public key, to hand out; {files.certificate}: with its validity.")
    say(f"Key {files.key_id}, valid until {files.expires}.")
