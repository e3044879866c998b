"""The settings: one typed table behind the command line, the TOML file and the API."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from qunlearn.errors import UserError, unknown

C = TypeVar("C", bound="Config")

LARGEST_SEED = 2**63 - 1
"""What torch's generators and TOML both take."""


def _numbers(value: Any) -> Any:
    return value.split(",") if isinstance(value, str) else value


def _possible_bits(bits: int) -> int:
    if bits != 32 and not 2 <= bits <= 8:
        raise ValueError("choose 2 to 8 bits, or 32 for full precision")
    return bits


Bits = Annotated[int, AfterValidator(_possible_bits)]
"""A number of bits that can be had."""


def _once(widths: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(widths))


Widths = Annotated[tuple[Bits, ...], BeforeValidator(_numbers), AfterValidator(_once)]
"""Several numbers of bits, on the command line with commas between; each is taken once."""

Numbers = Annotated[tuple[float, ...], BeforeValidator(_numbers)]
"""Several numbers, on the command line with commas between."""


PLAIN_WORDS = {
    "value_error": "{error}",
    "int_parsing": "give a whole number",
    "int_from_float": "give a whole number",
    "int_type": "give a whole number",
    "float_parsing": "give a number",
    "float_type": "give a number",
    "bool_parsing": "give true or false",
    "string_type": "give a text",
    "path_type": "give a path",
    "greater_than": "choose more than {gt:g}",
    "greater_than_equal": "choose {ge:g} or more",
    "less_than": "choose less than {lt:g}",
    "less_than_equal": "choose {le:g} or less",
    "literal_error": "choose {expected}",
    "finite_number": "give a finite number",
}
"""How the library of the settings puts it, said so that anybody understands."""


class Config(BaseModel):
    """Settings that refuse unknown names and wrong values with one sentence."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    panel: ClassVar[str] = "Settings"
    """The heading under which the command line's help shows these settings."""
    file_name: ClassVar[str] = "config.toml"
    """What the file is called that these settings are kept in."""

    @classmethod
    def joined(cls, written: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """What a file has, with the flags that were given instead or in addition."""
        return {**written, **given}

    @classmethod
    def parse(cls: type[C], values: Mapping[str, Any]) -> C:
        """Check `values`, or raise a `UserError` about the first wrong one."""
        for name in values:
            if name not in cls.model_fields:
                raise unknown("setting", name, cls.model_fields)
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            where = str(first["loc"][0]) if first["loc"] else "the settings"
            if first["type"] == "missing":
                extra = cls.model_fields[where].json_schema_extra
                argument = isinstance(extra, dict) and extra.get("argument")
                how = "name it after the command" if argument else f"give it with --{where}"
                raise UserError(
                    f"The setting {where!r} is missing; {how.replace('_', '-')}."
                ) from None
            reason = PLAIN_WORDS.get(first["type"], first["msg"]).format(**first.get("ctx", {}))
            raise UserError(f"{where} = {first['input']!r} is not possible: {reason}.") from None

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain values, the unset ones left out."""
        return self.model_dump(mode="json", exclude_none=True)


class DataConfig(Config):
    """Which samples: the source, the subset, the held-out part."""

    panel: ClassVar[str] = "Data"
    dataset: str = Field(
        "digits",
        description="digits, cifar10, cifar100, svhn, tiny-imagenet, a folder of images, or an "
        ".npz file.",
    )
    data_dir: Path | None = Field(None, description="Where the data set's files are.")
    download: bool = Field(False, description="Fetch the data set from its official address first.")
    subset: int | None = Field(
        None, gt=0, description="Use only N training images: a fixed, class-balanced subset."
    )
    image_size: int | None = Field(
        None, gt=0, description="Resize a folder's images to this many pixels a side."
    )
    cache_dir: Path | None = Field(
        None,
        description="Where downloads and decoded images are kept; your cache folder by default.",
    )
    metadata: Path | None = Field(
        None, description="A CSV to join to the samples by its column `id`."
    )
    split_seed: int = Field(
        0, ge=0, le=LARGEST_SEED, description="Seed of the subset and the held-out part."
    )


class ComputeConfig(Config):
    """How it is computed: devices, precision, threads."""

    panel: ClassVar[str] = "Machine"

    accelerator: str = Field("auto", description="auto, cpu, cuda or mps.")
    devices: int = Field(1, ge=1, description="How many devices or processes.")
    precision: Literal["32", "bf16", "16"] = Field("32", description="32, bf16 or 16 (mixed).")
    threads: int | None = Field(
        None, ge=1, le=1024, description="Processor threads; all cores by default."
    )
    compile: Literal["auto", "on", "off"] = Field(
        "auto", description="Compile the quantizers: on, off, or auto (where it saves time)."
    )


class OptimizerConfig(Config):
    """Stochastic gradient descent with momentum under a cosine schedule."""

    panel: ClassVar[str] = "Training"

    epochs: int = Field(182, ge=1, le=10**6, description="How many times each sample is seen.")
    batch_size: int = Field(256, ge=1, description="The most samples in one step.")
    lr: float = Field(
        0.1, gt=0, le=1e38, description="The learning rate that the cosine starts from."
    )
    warmup: float = Field(0.0, ge=0, description="Epochs of linear warm-up before the cosine.")
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum.")
    weight_decay: float = Field(
        5e-4,
        ge=0,
        le=1e38,
        description="Weight decay; quantizers' parameters get none, but for PACT's α.",
    )
    augment: bool = Field(True, description="Random crops and flips, as is usual for the data set.")
    seed: int = Field(
        0, ge=0, le=LARGEST_SEED, description="Seed of the weights, the order and the augmentation."
    )

    @field_validator("warmup")
    @classmethod
    def _warmup_ends(cls, warmup: float, info: ValidationInfo) -> float:
        epochs = info.data.get("epochs", 0)
        if warmup and epochs is not None and warmup >= epochs:
            raise ValueError(f"choose fewer than the {epochs} epochs")
        return warmup


class QuantConfig(Config):
    """How few bits."""

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
    start_digest: str = Field(
        "",
        description="The digest of the weights that it starts from, on record in the folder.",
        json_schema_extra={"hidden": True},
    )


class AdoptConfig(DataConfig, ModelConfig, QuantConfig, OptimizerConfig, ComputeConfig):
    """Everything that makes a run of a model trained elsewhere."""

    panel: ClassVar[str] = "What is known of the model"

    weights: Path = Field(..., description="The model's state dict, as a safetensors file.")
    trained_on: Path | None = Field(
        None, description="Ids it was trained on (CSV, JSON or text); default: all but held-out."
    )
    held_out: Path = Field(
        ..., description="Ids of data it truly never saw; they may come from the test part."
    )
    mean: Numbers | None = Field(
        None, description="The mean it was trained with, as 0.49,0.48,0.45: one for each channel."
    )
    std: Numbers | None = Field(
        None, description="The standard deviation it was trained with, likewise."
    )
    weight_bits: Bits = Field(32, description="Bits of the weights: 2 to 8, or 32.")
    act_bits: Bits = Field(32, description="Bits of each layer's input: 2 to 8, or 32.")
    epochs: int = Field(0, ge=0, le=10**6, description="Epochs of fine-tuning with few bits.")
    lr: float = Field(0.01, gt=0, le=1e38, description="The learning rate of the fine-tuning.")


class DescribeConfig(Config):
    """How a run's model is to be loaded."""

    model: str | None = Field(
        None, description="The package.module:factory of a model that is not qunlearn's own."
    )


class EvaluateConfig(DescribeConfig):
    """How a run is to be measured."""

    data_dir: Path | None = Field(None, description="Where the data set's files are now.")
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


class ExportConfig(DescribeConfig):
    """How a run's model is to be written for elsewhere."""

    target: Literal["compact", "fast"] = Field(
        "compact", description="compact: the smallest file; fast: convolutions in integers."
    )
    preprocess: bool = Field(False, description="Let the file normalise: it then takes pixels.")
    data_dir: Path | None = Field(None, description="Where the data set's files are now.")
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


class AuditBitsConfig(DescribeConfig):
    """How a run is to be looked at in other bit widths."""

    data_dir: Path | None = Field(None, description="Where the data set's files are now.")
    reference: Path | None = Field(
        None, description="A run retrained without what was forgotten, treated the same."
    )
    bits: Widths = Field(
        (2, 3, 4, 5, 6, 7, 8, 32),
        description="The bits to round the weights to, with commas between; 32 is full precision.",
    )


class DemoConfig(Config):
    """What of the demo can be chosen."""

    out: Path | None = Field(
        None, description="A new folder for its runs and its page; a temporary one by default."
    )
    seed: int = Field(
        0, ge=0, le=LARGEST_SEED, description="Seed of the weights, the order and the augmentation."
    )
