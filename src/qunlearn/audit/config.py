"""The settings of `qunlearn audit`."""

from __future__ import annotations

from pathlib import Path

from pydantic import (
    Field,
)

from qunlearn.runs.config import DescribeConfig
from qunlearn.runs.data_config import MOVED
from qunlearn.training.config import (
    Widths,
)


class AuditBitsConfig(DescribeConfig):
    """How a run is to be looked at in other bit widths."""

    data: Path | None = Field(None, description=MOVED, json_schema_extra={"metavar": "PATH"})
    reference: Path | None = Field(
        None, description="A run retrained without what was forgotten, treated the same."
    )
    bits: Widths = Field(
        (2, 3, 4, 5, 6, 7, 8, 32),
        description="The bits to round the weights to, with commas between; 32 is full precision.",
    )
