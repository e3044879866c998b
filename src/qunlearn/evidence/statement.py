"""The statement that is signed: an in-toto Statement v1 with a test result, typed throughout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from qunlearn.errors import UserError
from qunlearn.evidence.extra import needed
from qunlearn.runs.lines import RequestLine
from qunlearn.store.typed import untyped

STATEMENT = "https://in-toto.io/Statement/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"

Outcome = Literal["passed", "warned", "failed"]


@dataclass(frozen=True)
class Test:
    """One measurement or audit.

    Attributes:
        name: What was measured.
        outcome: Whether it passed.
        figure: The measured value.
        interval: Where the true value lies (95 %), from and to, in the same unit.
        unit: The unit.
        meaning: The same in a sentence, which is signed too: a record is read without qunlearn.
    """

    __test__ = False  # pytest would take it for one of its own

    name: str
    outcome: Outcome
    figure: float | None = None
    interval: tuple[float, float] | None = None
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


def check_statement(statement: Statement) -> None:
    """Raise unless in-toto's own package takes it for a valid statement."""
    pb, form = needed("in_toto_attestation.v1.statement_pb2"), needed("google.protobuf.json_format")
    checked = needed("in_toto_attestation.v1.statement").Statement
    try:
        parsed = form.Parse(statement.payload().decode(), pb.Statement())
        checked.copy_from_pb(parsed).validate()
    except (ValueError, form.Error) as error:
        raise UserError(f"The record is not a valid in-toto statement: {error}.") from None
