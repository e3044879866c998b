"""Settings: one typed schema for the command line, TOML files and the Python API."""

from __future__ import annotations

from collections.abc import Mapping
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
"""Maximum seed that both torch's generators and TOML accept."""

MOST_THREADS = 1024
"""Maximum number of threads per process."""


def _numbers(value: Any) -> Any:
    return value.split(",") if isinstance(value, str) else value


def _possible_bits(bits: int) -> int:
    if bits != 32 and not 2 <= bits <= 8:
        raise ValueError("choose 2 to 8 bits, or 32 for full precision")
    return bits


Bits = Annotated[int, AfterValidator(_possible_bits)]
"""A supported bit width."""


Epochs = Annotated[int, Field(ge=1, le=10**6)]
"""Number of epochs."""


LearningRate = Annotated[float, Field(gt=0, le=1e38)]
"""A learning rate that float32 can hold."""


def _once(widths: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(widths))


Widths = Annotated[tuple[Bits, ...], BeforeValidator(_numbers), AfterValidator(_once)]
"""Bit widths, comma-separated on the command line; repeated ones count once."""


Numbers = Annotated[tuple[float, ...], BeforeValidator(_numbers)]
"""Numbers, comma-separated on the command line."""


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
"""Plain wording for pydantic's error types."""


class Config(BaseModel):
    """Base class of settings; unknown names and invalid values are a `UserError`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    panel: ClassVar[str] = "Settings"
    """The heading under which the command line's help shows these settings."""
    file_name: ClassVar[str] = "config.toml"
    """Name of the file that these settings are saved in."""

    @classmethod
    def modernised(cls, written: Mapping[str, object]) -> Mapping[str, object]:
        """What a file has, as it is written now; earlier versions may have written it otherwise."""
        return written

    @classmethod
    def joined(
        cls, written: Mapping[str, object], flags: Mapping[str, object]
    ) -> dict[str, object]:
        """What a file has, with the flags that were given instead or in addition."""
        return {**written, **flags}

    @classmethod
    def parse(cls: type[C], values: Mapping[str, object]) -> C:
        """Check `values`, or raise a `UserError` about the first wrong one."""
        for name in values:
            if name not in cls.model_fields:
                raise unknown("setting", name, cls.model_fields)
        try:
            return cls.model_validate(dict(values))
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
            raise UserError(f"{where} = {first['input']!r} is invalid: {reason}.") from None

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain values; None is left out."""
        return self.model_dump(mode="json", exclude_none=True)


class ComputeConfig(Config):
    """Hardware settings: devices, precision, threads."""

    panel: ClassVar[str] = "Machine"

    accelerator: str = Field("auto", description="auto, cpu, cuda or mps.")
    devices: int = Field(1, ge=1, description="Number of devices or processes on each node.")
    nodes: int | None = Field(
        None,
        ge=1,
        description="Number of nodes. Default: the number that torchrun or srun started.",
    )
    sync_batchnorm: bool | None = Field(
        None, description="Whether processes share BatchNorm's batch statistics; no by default."
    )
    precision: Literal["32", "bf16", "16"] = Field("32", description="32, bf16 or 16 (mixed).")
    threads: int | None = Field(
        None, ge=1, le=MOST_THREADS, description="Processor threads; all cores by default."
    )
    compile: Literal["auto", "on", "off"] = Field(
        "auto", description="Compile the quantizers: on, off, or auto (where it saves time)."
    )

    @property
    def processes(self) -> int:
        """Number of processes, over all nodes."""
        return self.devices * (self.nodes or 1)


class StepConfig(Config):
    """A step of stochastic gradient descent with momentum."""

    panel: ClassVar[str] = "Training"

    batch_size: int = Field(256, ge=1, description="Maximum number of samples in one step.")
    lr: LearningRate = Field(0.1, description="The learning rate that the cosine starts from.")
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


class OptimizerConfig(StepConfig):
    """Stochastic gradient descent with momentum under a cosine schedule."""

    epochs: Epochs = Field(182, description="How many times each sample is seen.")
    warmup: float = Field(0.0, ge=0, description="Epochs of linear warm-up before the cosine.")

    @field_validator("warmup")
    @classmethod
    def _warmup_ends(cls, warmup: float, info: ValidationInfo) -> float:
        epochs = info.data.get("epochs", 0)
        if warmup and epochs is not None and warmup >= epochs:
            raise ValueError(f"choose fewer than the {epochs} epochs")
        return warmup
