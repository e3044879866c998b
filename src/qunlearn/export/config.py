"""The settings of `qunlearn export`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import (
    Field,
)

from qunlearn.runs.config import DescribeConfig
from qunlearn.runs.data_config import MOVED


class ExportConfig(DescribeConfig):
    """How a run's model is to be written for elsewhere."""

    target: Literal["compact", "fast"] = Field(
        "compact", description="compact: the smallest file; fast: convolutions in integers."
    )
    preprocess: bool = Field(False, description="Let the file normalise: it then takes pixels.")
    data: Path | None = Field(None, description=MOVED, json_schema_extra={"metavar": "PATH"})
    most_samples: int = Field(
        2000, ge=1, description="On how many test samples the file is compared with the model."
    )
    least_agreement: float | None = Field(
        None,
        ge=0,
        le=100,
        description="Percentage of samples that must get the same class; 99.5 by default.",
    )
    opset: int | None = Field(
        None, description="Version of ONNX's operators; by default the oldest possible, 21 or 25."
    )
