"""The signed record: an in-toto Statement v1 with a test result, in a DSSE envelope.

Everything in it is typed. A file is a record only if writing what was read gives the same bytes, so
that no changed byte goes unnoticed.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from qunlearn.errors import UserError
from qunlearn.evidence.extra import needed
from qunlearn.runs.lines import RequestLine
from qunlearn.store.files import json_text, reading
from qunlearn.store.limits import parse_json
from qunlearn.store.typed import typed, untyped

RECORD, PAGE = "forgetting.intoto.json", "forgetting.html"
PAYLOAD = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
LARGEST = 1 << 24
"""Maximum bytes of a record."""

Outcome = Literal["passed", "warned", "failed"]


@dataclass(frozen=True)
class Test:
    """One measurement or audit.

    Attributes:
        name: What was measured.
        outcome: Whether it passed.
        figure: The measured value.
        interval: Its margin of error (95 %), in the same unit.
        unit: The unit.
        meaning: The same in a sentence.
    """

    __test__ = False  # pytest would take it for one of its own

    name: str
    outcome: Outcome
    figure: float | None = None
    interval: float | None = None
    unit: str = "%"
    meaning: str = ""


@dataclass(frozen=True)
class Digest:
    """A SHA-256."""

    sha256: str


@dataclass(frozen=True)
class Subject:
    """A file that the record is about."""

    name: str
    digest: Digest


@dataclass(frozen=True)
class Committed:
    """The samples of the request, without naming them: see `evidence.merkle`."""

    root: str
    samples: int
    scheme: str = "salted-merkle-sha256"


@dataclass(frozen=True)
class Request:
    """What was asked.

    Attributes:
        lines: The requests that were met in one go, each with its reference and date.
        samples: How many samples were forgotten or retired.
        completed: When the network had forgotten.
        committed: The commitment to their ids.
    """

    lines: tuple[RequestLine, ...]
    samples: int
    completed: str
    committed: Committed


@dataclass(frozen=True)
class Erased:
    """What was erased, what was not, and when; see `evidence.erase`."""

    completed: str
    removed: tuple[str, ...]
    cleaned: tuple[str, ...]
    left: tuple[str, ...]


@dataclass(frozen=True)
class Previous:
    """The record before this one: its digest, and where it was."""

    sha256: str
    place: str


@dataclass(frozen=True)
class Signer:
    """The key that signed."""

    key_id: str
    public_key: str


@dataclass(frozen=True)
class Predicate:
    """The predicate: a test result v0.1, and beside it what it is about.

    Attributes:
        result: The worst outcome.
        configuration: The settings that the run was made with.
        passedTests: The names of the tests that passed.
        warnedTests: Those that did not pass, nor fail.
        failedTests: Those that failed.
        tests: All of them with their figures.
        request: What was asked.
        method: The unlearning method.
        settings: Its settings.
        erased: What was erased; None if nothing was.
        limits: What the record does not say.
        previous: The record before; None for the first.
        signer: Who signed.
        made: When the record was made.
        software: The program that made it.
    """

    result: Literal["PASSED", "WARNED", "FAILED"]
    configuration: tuple[Subject, ...]
    passedTests: tuple[str, ...]  # as the predicate spells them
    warnedTests: tuple[str, ...]
    failedTests: tuple[str, ...]
    tests: tuple[Test, ...]
    request: Request
    method: str
    settings: Mapping[str, object]
    limits: tuple[str, ...]
    signer: Signer
    made: str
    software: str
    erased: Erased | None = None
    previous: Previous | None = None


@dataclass(frozen=True)
class Statement:
    """The statement that is signed."""

    subject: tuple[Subject, ...]
    predicate: Predicate
    predicateType: str = TEST_RESULT
    type: str = STATEMENT

    def payload(self) -> bytes:
        """The bytes that are signed."""
        content = untyped(self)
        content["_type"] = content.pop("type")
        return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


@dataclass(frozen=True)
class Signature:
    """A signature in an envelope."""

    keyid: str
    sig: str


@dataclass(frozen=True)
class Envelope:
    """A DSSE envelope as it stands in a file."""

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


def check_statement(statement: Statement) -> None:
    """Raise unless in-toto's own package takes it for a valid statement."""
    pb, form = needed("in_toto_attestation.v1.statement_pb2"), needed("google.protobuf.json_format")
    checked = needed("in_toto_attestation.v1.statement").Statement
    try:
        parsed = form.Parse(statement.payload().decode(), pb.Statement())
        checked.copy_from_pb(parsed).validate()
    except (ValueError, form.Error) as error:
        raise UserError(f"The record is not a valid in-toto statement: {error}.") from None


def read_record(path: Path) -> Record:
    """Read a record; what is none, or was changed in any byte, is a `UserError`."""
    with reading(path) as file:
        content = file.read(LARGEST + 1)
    try:
        if len(content) > LARGEST:
            raise ValueError("it is too large")
        envelope = typed(Envelope, parse_json(content.decode()), path)
        if envelope.text().encode() != content:
            raise ValueError("it is not written as qunlearn writes records")
        payload = base64.b64decode(envelope.payload, validate=True)
        if base64.b64encode(payload).decode() != envelope.payload:
            raise ValueError("its payload is not plain base64")
        for signature in envelope.signatures:
            raw = base64.b64decode(signature.sig, validate=True)
            if base64.b64encode(raw).decode() != signature.sig:
                raise ValueError("its signature is not plain base64")
        inside = parse_json(payload.decode())
        if not isinstance(inside, dict) or envelope.payloadType != PAYLOAD:
            raise ValueError("its payload is not a statement")
        inside["type"] = inside.pop("_type", "")
        statement = typed(Statement, inside, path)
        if statement.payload() != payload:
            raise ValueError("its payload is not written as qunlearn writes statements")
        if (statement.type, statement.predicateType) != (STATEMENT, TEST_RESULT):
            raise ValueError("it is another kind of statement")
    except UserError as error:
        raise _no_record(path, str(error)) from None
    except (ValueError, RecursionError) as error:
        raise _no_record(path, str(error)) from None
    return Record(path, statement, envelope, hashlib.sha256(content).hexdigest())


def _no_record(path: Path, why: str) -> UserError:
    return UserError(
        f"{str(path)!r} is not an intact record ({why}); get it again from who signed it."
    )


def _dsse(envelope: Envelope) -> Any:
    content = untyped(envelope)
    return needed("securesystemslib.dsse").Envelope.from_dict(content)
