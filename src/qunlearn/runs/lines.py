"""The requests that a run answers: one line each, as the ledger and the record show them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RequestLine:
    """One request of one person.

    Attributes:
        samples: How many samples it names.
        reference: What the officer calls it, such as a ticket number.
        received: The day that it was received, in ISO 8601.
    """

    samples: int
    reference: str | None = None
    received: str | None = None
