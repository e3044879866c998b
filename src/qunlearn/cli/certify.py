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
    from qunlearn.report.record import findings_of, record_page
    from qunlearn.store.run import Run

    opened = Run.open(run)
    findings = findings_of(opened)
    done = certify(opened, key, findings, record_page, onnx=onnx or (), proof_for=proof_for or ())
    record, tests = done.record, done.record.predicate
    page = record.path.with_name("forgetting.html")
    if json:
        written = {"record": str(record.path), "page": str(page), "sha256": record.sha256}
        proofs = {name: str(path) for name, path in done.proofs.items()}
        root = tests.request.committed.root
        print_json({**written, "result": tests.result, "root": root, "proofs": proofs})
        return
    say(f"{record.path}: {tests.result}; {len(tests.passedTests)} of {len(tests.tests)} passed.")
    say(f"{page}: the same, to print.")
    for path in done.proofs.values():
        say(f"{path}: a proof, for the requester alone; delete it here once it is handed over.")
