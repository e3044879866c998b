"""The settings that all audits share."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from qunlearn.runs.config import DescribeConfig
from qunlearn.runs.data_config import MOVED
from qunlearn.training.config import LARGEST_SEED, MOST_THREADS


class AuditConfig(DescribeConfig):
    """Which run is audited, and beside what."""

    data: Path | None = Field(None, description=MOVED, json_schema_extra={"metavar": "PATH"})
    reference: Path | None = Field(
        None, description="A run retrained without what was forgotten, treated the same."
    )
    seed: int = Field(
        0, ge=0, le=LARGEST_SEED, description="Seed of the samples and steps that are drawn."
    )
    threads: int | None = Field(
        None, ge=1, le=MOST_THREADS, description="Processor threads; all cores by default."
    )
