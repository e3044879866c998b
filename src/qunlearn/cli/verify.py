"""`qunlearn verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qunlearn.cli.output import print_json, say
from qunlearn.cli.settings import Json
from qunlearn.errors import Failure

RecordFile = Annotated[Path, typer.Argument(help="The record, forgetting.intoto.json.")]
Files = Annotated[
    list[Path] | None, typer.Argument(help="Files that it must be about, such as model.onnx.")
]
PublicKey = Annotated[
    Path | None,
    typer.Option("--public-key", help="The signer's .pub or .crt file, from a trusted source."),
]
ProofFile = Annotated[
    Path | None, typer.Option("--proof", help="A proof that an id is in the request.")
]


def command(
    record: RecordFile,
    files: Files = None,
    public_key: PublicKey = None,
    proof: ProofFile = None,
    json: Json = False,
) -> None:
    """Check a signed record, and say what it proves and what it only claims.

    Checks the signature, the files that the record is about where they stand beside it, and the
    records before it. Changes nothing. Exit code 0: it verifies. 1: it does not.

    Examples:
      qunlearn verify runs/no-42/forgetting.intoto.json --public-key officer.pub

      qunlearn verify forgetting.intoto.json model.onnx --proof proof-1.json
    """
    from qunlearn.evidence.verify import verify
    from qunlearn.report.verification import verification_words
    from qunlearn.store.typed import untyped

    result = verify(record, files or (), public_key=public_key, proof=proof)
    if json:
        checks = [untyped(check) for check in result.checks]
        statement = untyped(result.record.statement)
        print_json({"valid": result.valid, "checks": checks, "statement": statement})
    else:
        for line in verification_words(result):
            say(line)
    if not result.valid:
        raise Failure(f"{str(record)!r} does not verify.")
