"""The commitment to a request's ids, made once and kept in the run folder for its owner alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qunlearn.data import manifest
from qunlearn.errors import UserError
from qunlearn.evidence.clean import alias_of
from qunlearn.evidence.merkle import Commitment, Proof, commit, prove
from qunlearn.store.files import json_text, read_object
from qunlearn.store.run import Run
from qunlearn.store.secret import write_secret
from qunlearn.store.typed import typed, untyped

COMMITMENT = "commitment.json"


def commitment_of(run: Run) -> Commitment:
    """The commitment to the ids of a run's last request; made and saved if there is none yet."""
    path = run.path / COMMITMENT
    if not path.is_file():
        request = manifest.parse(run.split).requests[-1]
        made = commit([*request.ids, *request.retired])
        write_secret(path, json_text(untyped(made)).encode())
    found = typed(Commitment, read_object(path), path)
    if not found.leaves:
        raise UserError(f"The commitment {str(path)!r} is empty; restore it from a copy.")
    return found


def write_proofs(run: Run, ids: Sequence[str]) -> dict[str, Path]:
    """Write a proof for each id, to hand to its requester; none if one of them has none."""
    commitment = commitment_of(run) if ids else None
    proofs = {}
    for name in ids:
        assert commitment is not None
        proof = prove(commitment, name) or prove(commitment, alias_of(run)(name))
        if proof is None:
            raise UserError(
                f"The id {name!r} is not in the request, so that there is no proof for it; check "
                "the id, with its part, such as 'train/42'."
            )
        proofs[name] = proof
    written = {}
    for number, (name, proof) in enumerate(proofs.items(), 1):
        path = run.path / f"proof-{number}.json"
        write_secret(path, json_text(untyped(proof)).encode())
        written[name] = path
    return written


def read_proof(path: Path) -> Proof:
    """Read a proof."""
    return typed(Proof, read_object(path), path)
