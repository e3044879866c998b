"""`qunlearn certify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qunlearn.cli.output import print_json, say
from qunlearn.cli.settings import Json, RunFolder

Key = Annotated[Path, typer.Option("--key", help="The private key, such as officer.pem.")]
Onnx = Annotated[
    list[Path] | None,
    typer.Option("--onnx", help="An exported file that the record is to cover; may be repeated."),
]
ProofFor = Annotated[
    list[str] | None,
    typer.Option(
        "--proof-for",
        metavar="ID",
        help="Also write a proof that this id is in the request; may be repeated.",
    ),
]


def command(
    run: RunFolder, key: Key, onnx: Onnx = None, proof_for: ProofFor = None, json: Json = False
) -> None:
    """Write a signed record of what a run has forgotten, and of what was erased.

    Writes forgetting.intoto.json (an in-toto statement in a DSSE envelope) and forgetting.html, the
    same as a page to print, into the run's folder. It continues the chain of the records in the
    folders beside. A proof goes into proof-1.json and so on, to hand to the requester.

    Examples:
      qunlearn certify runs/no-42 --key officer.pem

      qunlearn certify runs/no-42 --key officer.pem --onnx model.onnx --proof-for train/42
    """
    from qunlearn.evidence.certify import certify
    from qunlearn.evidence.commitment import commitment_of, write_proofs
    from qunlearn.report.record import findings_of, record_page
    from qunlearn.store.run import Run

    opened = Run.open(run)
    proofs = write_proofs(opened, proof_for or ())
    record = certify(opened, key, findings_of(opened), record_page, onnx or ())
    page = record.path.with_name("forgetting.html")
    if json:
        written = {"record": str(record.path), "page": str(page), "sha256": record.sha256}
        paths = {name: str(path) for name, path in proofs.items()}
        root = commitment_of(opened).root
        print_json({**written, "result": record.predicate.result, "root": root, "proofs": paths})
        return
    tests = record.predicate
    say(f"{record.path}: {tests.result}; {len(tests.passedTests)} of {len(tests.tests)} passed.")
    say(f"{page}: the same, to print.")
    for path in proofs.values():
        say(f"{path}: a proof, for the requester alone.")
