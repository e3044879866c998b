"""Timestamps in ISO 8601, in UTC, to the second."""

from __future__ import annotations

from datetime import UTC, datetime


def utc(moment: float) -> str:
    """Format a Unix time, in seconds since 1970.

    >>> utc(1_700_000_000.9)
    '2023-11-14T22:13:20Z'
    """
    return datetime.fromtimestamp(int(moment), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
