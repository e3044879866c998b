"""The signed record: a statement in a DSSE envelope, as a file has it.

Everything in it is typed. A file is a record only if writing what was read gives the same bytes, so
that no changed byte goes unnoticed.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qunlearn.errors import UserError
from qunlearn.evidence.extra import needed
from qunlearn.evidence.statement import (
    STATEMENT,
    TEST_RESULT,
    Predicate,
    Statement,
    check_statement,
)
from qunlearn.store.files import json_text, reading
from qunlearn.store.limits import parse_json
from qunlearn.store.typed import typed, untyped

RECORD, PAGE = "forgetting.intoto.json", "forgetting.html"
PAYLOAD = "application/vnd.in-toto+json"
LARGEST = 1 << 24
"""Maximum bytes of a record."""


@dataclass(frozen=True)
class Signature:
    """A signature in an envelope.

    Attributes:
        keyid: The fingerprint of the key.
        sig: The signature, in base64.
    """

    keyid: str
    sig: str


@dataclass(frozen=True)
class Envelope:
    """A DSSE envelope as it stands in a file.

    Attributes:
        payload: The statement, in base64.
        payloadType: The media type of the statement.
        signatures: One signature.
    """

    payload: str
    payloadType: str
    signatures: tuple[Signature, ...]

    def text(self) -> str:
        """The content of the file."""
        return json_text(untyped(self))


@dataclass(frozen=True)
class Record:
    """A record: what is signed, its envelope, and the digest of its file."""

    path: Path
    statement: Statement
    envelope: Envelope
    sha256: str = field(repr=False)

    @property
    def predicate(self) -> Predicate:
        """What the record says."""
        return self.statement.predicate

    def signed_bytes(self) -> bytes:
        """The pre-authentication encoding, over which the signature is made."""
        return _dsse(self.envelope).pae()  # type: ignore[no-any-return]

    def is_signed_by(self, key: Any) -> bool:
        """Whether the envelope has the key's signature, and no other."""
        errors = needed("securesystemslib.exceptions")
        if [signature.keyid for signature in self.envelope.signatures] != [key.keyid]:
            return False
        try:
            _dsse(self.envelope).verify([key], 1)
        except (errors.Error, ValueError):
            return False
        return True


def sign(statement: Statement, signer: Any) -> Envelope:
    """Sign a statement."""
    dsse = needed("securesystemslib.dsse")
    check_statement(statement)
    envelope = dsse.Envelope(statement.payload(), PAYLOAD, {})
    envelope.sign(signer)
    return typed(Envelope, envelope.to_dict(), Path(RECORD))


def read_record(path: Path) -> Record:
    """Read a record; what is none, or was changed in any byte, is a `UserError`."""
    with reading(path) as file:
        content = file.read(LARGEST + 1)
    try:
        envelope = _envelope(content, path)
        statement = _statement(_decoded(envelope.payload), path)
    except (UserError, ValueError, RecursionError) as error:
        raise UserError(
            f"{str(path)!r} is not an intact record ({_reason(error)}); get it again from who "
            "signed it."
        ) from None
    return Record(path, statement, envelope, hashlib.sha256(content).hexdigest())


def _envelope(content: bytes, path: Path) -> Envelope:
    if len(content) > LARGEST:
        raise ValueError("it is too large")
    envelope = typed(Envelope, parse_json(content.decode()), path)
    if envelope.text().encode() != content:
        raise ValueError("it is not written as qunlearn writes records")
    if envelope.payloadType != PAYLOAD:
        raise ValueError("its payload is not a statement")
    for signature in envelope.signatures:
        _decoded(signature.sig)
    return envelope


def _statement(payload: bytes, path: Path) -> Statement:
    content = parse_json(payload.decode())
    if not isinstance(content, dict):
        raise ValueError("its payload is not a statement")
    content["type"] = content.pop("_type", "")
    statement = typed(Statement, content, path)
    if statement.payload() != payload:
        raise ValueError("its payload is not written as qunlearn writes statements")
    if (statement.type, statement.predicateType) != (STATEMENT, TEST_RESULT):
        raise ValueError("it is another kind of statement")
    return statement


def _decoded(text: str) -> bytes:
    """Decode base64; of several spellings of the same bytes, only the usual one is taken."""
    content = base64.b64decode(text, validate=True)
    if base64.b64encode(content).decode() != text:
        raise ValueError("it is not plain base64")
    return content


def _reason(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _dsse(envelope: Envelope) -> Any:
    content = untyped(envelope)
    return needed("securesystemslib.dsse").Envelope.from_dict(content)
