"""Checking a signed record: what it proves, and what it only claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Literal

from qunlearn.errors import UserError
from qunlearn.evidence.certify import records_below
from qunlearn.evidence.commitment import read_proof
from qunlearn.evidence.keys import PublicKey, public_from, read_public
from qunlearn.evidence.record import Record, read_record
from qunlearn.evidence.statement import check_statement
from qunlearn.store.files import sha256
from qunlearn.store.layout import RECORDS
from qunlearn.store.place import FILE, kind_of

What = Literal["signature", "signer", "validity", "file", "chain", "proof"]
State = Literal["proven", "claimed", "failed"]
LONGEST = 100_000
"""Maximum number of records in a chain."""


@dataclass(frozen=True)
class Check:
    """One thing that was checked.

    Attributes:
        what: What kind of thing.
        state: Whether it is proven, only claimed, or wrong.
        name: The file or key that it is about.
        reason: What was found, in a word.
    """

    what: What
    state: State
    name: str
    reason: str


@dataclass(frozen=True)
class Verification:
    """What was checked about a record."""

    record: Record
    checks: tuple[Check, ...]

    @property
    def valid(self) -> bool:
        """Whether nothing is wrong."""
        return all(check.state != "failed" for check in self.checks)

    @property
    def signed(self) -> bool:
        """Whether the signature is the key's; if not, nothing else is checked."""
        return all(c.state == "proven" for c in self.checks if c.what == "signature")


def verify(
    path: Path,
    files: Sequence[Path] = (),
    *,
    public_key: Path | None = None,
    proof: Path | None = None,
) -> Verification:
    """Check a record, and the files that it is about.

    Args:
        path: The record.
        files: Files that it must be about, such as an exported model.
        public_key: The signer's public key or certificate, from a source that you trust.
        proof: A proof that an id is in the request.
    """
    record = read_record(path)
    check_statement(record.statement)
    signer = public_from(record.predicate.signer.public_key.encode(), f"signer of {path}")
    key = read_public(public_key) if public_key is not None else signer
    signature = _signature(record, key)
    if signature.state == "failed":  # whatever the record says, nobody signed it
        return Verification(record, (signature,))
    checks = [signature, _signer(record, public_key)]
    checks += _validity(record, key)
    checks += _beside(record, [file.name for file in files])
    checks += [_named(record, file) for file in files]
    checks += _chain(record, key)
    if proof is not None:
        checks.append(_proof(record, proof))
    return Verification(record, tuple(checks))


def _signature(record: Record, key: PublicKey) -> Check:
    signer = record.predicate.signer
    good = record.is_signed_by(key.key) and signer.key_id == key.key.keyid
    good = good and signer.public_key == key.pem
    return Check("signature", "proven" if good else "failed", record.path.name, key.key.keyid)


def _signer(record: Record, public_key: Path | None) -> Check:
    trusted = public_key is not None
    name = str(public_key) if trusted else record.predicate.signer.key_id
    return Check(
        "signer", "proven" if trusted else "claimed", name, "named" if trusted else "unnamed"
    )


def _validity(record: Record, key: PublicKey) -> list[Check]:
    if key.expires is None or key.begins is None:
        return []
    try:
        made = datetime.fromisoformat(record.predicate.made)
        good = made.tzinfo is not None and key.begins <= made <= key.expires
    except ValueError:
        good = False
    name = f"{key.begins.date()} to {key.expires.date()}"
    return [Check("validity", "claimed" if good else "failed", name, record.predicate.made)]


def _beside(record: Record, named: Sequence[str]) -> list[Check]:
    """The record's files, where they stand beside it."""
    checks = []
    for subject in record.statement.subject:
        if subject.name in named:
            continue
        path = record.path.parent / subject.name
        # A name that is a path could lead anywhere.
        plain = PurePosixPath(subject.name).name == subject.name
        if not plain or kind_of(path) != FILE:
            checks.append(Check("file", "claimed", subject.name, "absent"))
        else:
            same = sha256(path) == subject.digest.sha256
            state: State = "proven" if same else "failed"
            checks.append(Check("file", state, subject.name, "same" if same else "changed"))
    return checks


def _named(record: Record, path: Path) -> Check:
    digests = {subject.digest.sha256 for subject in record.statement.subject}
    same = sha256(path) in digests
    return Check("file", "proven" if same else "failed", str(path), "same" if same else "unknown")


def _chain(record: Record, key: PublicKey) -> list[Check]:
    """The records before: each is found by its digest, and signed."""
    run = record.path.absolute().parent
    home = run.parent.parent.parent if run.parent.name == RECORDS else run.parent
    paths = {sha256(path): path for path in records_below(home)}
    checks: list[Check] = []
    seen = {record.sha256}
    while (previous := record.predicate.previous) is not None and len(seen) < LONGEST:
        path = paths.get(previous.sha256)
        if path is None:
            place = PurePosixPath(previous.place)
            inside = not place.is_absolute() and ".." not in place.parts
            replaced = inside and kind_of(home / place) is not None
            state: State = "failed" if replaced else "claimed"
            checks.append(
                Check("chain", state, previous.place, "changed" if replaced else "absent")
            )
            break
        name = path.relative_to(home).as_posix()
        try:
            earlier = read_record(path)
            signer = public_from(earlier.predicate.signer.public_key.encode(), name)
            signed = earlier.sha256 not in seen and earlier.is_signed_by(signer.key)
        except UserError:
            signed = False
        if not signed:
            checks.append(Check("chain", "failed", name, "unsigned"))
            break
        same = signer.key.keyid == key.key.keyid
        state = "proven" if same else "claimed"
        checks.append(Check("chain", state, name, "same key" if same else "another key"))
        seen.add(earlier.sha256)
        record = earlier
    return checks


def _proof(record: Record, path: Path) -> Check:
    proof = read_proof(path)
    good = proof.holds and proof.root == record.predicate.request.committed.root
    return Check("proof", "proven" if good else "failed", proof.id, str(path))
