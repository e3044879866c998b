"""The settings of the commands that make and measure runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from qunlearn.runs.data_config import MOVED, DataConfig
from qunlearn.runs.provenance import Provenance, separated
from qunlearn.training.config import (
    LARGEST_SEED,
    MOST_THREADS,
    Bits,
    ComputeConfig,
    Config,
    LearningRate,
    Numbers,
    OptimizerConfig,
)


class QuantConfig(Config):
    """The bit widths and the quantizer."""

    panel: ClassVar[str] = "Bits"

    quantizer: str = Field("lsq+", description="lsq+, lsq, pact, dsq or none.")
    weight_bits: Bits = Field(4, description="Bits of the weights: 2 to 8, or 32.")
    act_bits: Bits = Field(4, description="Bits of each layer's input: 2 to 8, or 32.")
    first_last_bits: Bits = Field(8, description="Bits of the first and last layer: 2 to 8, or 32.")
    per_channel: bool = Field(False, description="A scale for each output channel of a weight.")
    init: Literal["published", "mse"] = Field(
        "published", description="How scales start: published formula, or mse (least squares)."
    )
    keep: tuple[str, ...] = Field(
        (),
        description="A layer to leave in full precision, as fc or *.shortcut.*; may be repeated.",
        json_schema_extra={"metavar": "LAYER", "repeated": True},
    )


class ModelConfig(Config):
    """Which network."""

    panel: ClassVar[str] = "Network"

    model: str = Field(
        "resnet18", description="resnet18, mobilenetv2, cnn or package.module:factory."
    )
    width: float = Field(1.0, gt=0, le=16, description="Width multiplier of qunlearn's own models.")


class TrainConfig(DataConfig, ModelConfig, QuantConfig, OptimizerConfig, ComputeConfig):
    """Everything that makes a trained run."""

    panel: ClassVar[str] = "Data"

    held_out: float = Field(
        0.1, gt=0, lt=1, description="Share of each class that is never trained on."
    )
    start_from: Path | None = Field(
        None, description="A run on the same split to start from, such as the full-precision twin."
    )
    data: Path | None = Field(
        None, description=f"With --resume: {MOVED}", json_schema_extra={"metavar": "PATH"}
    )
    provenance: Provenance | None = Field(
        None, description="On record in a run's folder.", json_schema_extra={"hidden": True}
    )

    @classmethod
    def modernised(cls, written: Mapping[str, object]) -> Mapping[str, object]:
        """What a file has, with its provenance in a table of its own."""
        return separated(written)


class AdoptConfig(DataConfig, ModelConfig, QuantConfig, OptimizerConfig, ComputeConfig):
    """Everything that makes a run of a model trained elsewhere."""

    panel: ClassVar[str] = "What is known of the model"

    weights: Path = Field(..., description="The network's state dict, as a safetensors file.")
    trained_on: Path | None = Field(
        None, description="Ids it was trained on (CSV, JSON or text); default: all but held-out."
    )
    held_out: Path | None = Field(
        None,
        description="Ids of data it truly never saw, which may come from the test part; or a share "
        "of the test part, as test:0.2, drawn by --split-seed.",
        json_schema_extra={"metavar": "FILE|test:SHARE"},
    )
    retrain_of: Path | None = Field(
        None,
        description="Declare it the Retrain of this run, which has forgotten: a --reference for "
        "it. Data, parts and network are the run's.",
    )
    column: str | None = Field(
        None, description="The column of these lists that holds the ids; `id` by default."
    )
    mean: Numbers | None = Field(
        None, description="The mean it was trained with, as 0.49,0.48,0.45: one for each channel."
    )
    std: Numbers | None = Field(
        None, description="The standard deviation it was trained with, likewise."
    )
    weight_bits: Bits = Field(32, description="Bits of the weights: 2 to 8, or 32.")
    act_bits: Bits = Field(32, description="Bits of each layer's input: 2 to 8, or 32.")
    epochs: int = Field(0, ge=0, le=10**6, description="Epochs of low-bit fine-tuning.")
    lr: LearningRate = Field(0.01, description="The learning rate of the fine-tuning.")


class DescribeConfig(Config):
    """How a run's model is to be loaded."""

    model: str | None = Field(
        None, description="The package.module:factory of a model that is not qunlearn's own."
    )


class EvaluateConfig(DescribeConfig):
    """How a run is to be measured."""

    data: Path | None = Field(None, description=MOVED, json_schema_extra={"metavar": "PATH"})
    reference: Path | None = Field(
        None, description="A run retrained without what was forgotten, to compare with."
    )
    onnx: Path | None = Field(
        None, description="Measure this file instead, which was exported from the run."
    )
    exact: bool = Field(
        False,
        description="Attack with scikit-learn's SVC: the same figure, and much slower.",
    )
    vector: bool = Field(
        False, description="Also attack by the whole vector of probabilities; takes some seconds."
    )
    seed: int = Field(
        0, ge=0, le=LARGEST_SEED, description="Seed of the samples that the attacks learn from."
    )
    threads: int | None = Field(
        None, ge=1, le=MOST_THREADS, description="Processor threads; all cores by default."
    )
