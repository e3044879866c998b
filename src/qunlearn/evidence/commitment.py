"""The commitment to a request's ids, made once and kept in the run folder for its owner alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from qunlearn.data import manifest
from qunlearn.data.manifest import TOKEN
from qunlearn.errors import UserError
from qunlearn.evidence.clean import alias_of
from qunlearn.evidence.merkle import Commitment, Proof, commit, members, prove
from qunlearn.store.files import json_text, read_object
from qunlearn.store.place import FILE, kind_of
from qunlearn.store.run import Run
from qunlearn.store.secret import write_secret
from qunlearn.store.typed import typed, untyped

COMMITMENT = "commitment.json"


def commitment_of(run: Run) -> Commitment:
    """The commitment to the ids of a run's last request: as saved, else a new one."""
    path = run.path / COMMITMENT
    if kind_of(path) != FILE:
        request = manifest.parse(run.split).requests[-1]
        names = [*request.ids, *request.retired]
        if any(name.startswith(TOKEN) for name in names):
            raise UserError(
                f"The ids of the request are erased, and {str(path)!r}, which stood for them, is "
                "gone; restore it from a copy."
            )
        return commit(names)
    commitment = typed(Commitment, read_object(path), path)
    if not commitment.leaves:
        raise UserError(f"The commitment {str(path)!r} is empty; restore it from a copy.")
    return commitment


def save_commitment(run: Run, commitment: Commitment) -> None:
    """Save a commitment for later proofs, unless that was done before."""
    path = run.path / COMMITMENT
    if kind_of(path) is None:
        write_secret(path, json_text(untyped(commitment)).encode())


def committed_ids(run: Run, names: Iterable[str]) -> frozenset[str]:
    """Which of these ids are in a run's saved commitment; none if there is none."""
    if kind_of(run.path / COMMITMENT) != FILE:
        return frozenset()
    return members(commitment_of(run), names)


def proofs_for(run: Run, commitment: Commitment, ids: Sequence[str]) -> dict[str, Proof]:
    """A proof for each id; a `UserError` if one of them is not in the request."""
    alias, proofs = alias_of(run), {}
    for name in ids:
        proof = prove(commitment, name) or prove(commitment, alias(name))
        if proof is None:
            raise UserError(
                f"The id {name!r} is not in the request, so that there is no proof for it; check "
                "the id, with its part, such as 'train/42'."
            )
        proofs[name] = proof
    return proofs


def write_proofs(run: Run, proofs: Mapping[str, Proof]) -> dict[str, Path]:
    """Write each proof to a file of its own, to hand to its requester; none is overwritten."""
    written, number = {}, 1
    for name, proof in proofs.items():
        content = json_text(untyped(proof)).encode()
        while (path := run.path / f"proof-{number}.json").exists():
            if path.read_bytes() == content:
                break
            number += 1
        else:
            write_secret(path, content)
        written[name] = path
        number += 1
    return written


def read_proof(path: Path) -> Proof:
    """Read a proof."""
    return typed(Proof, read_object(path), path)
