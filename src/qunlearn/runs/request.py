"""What a request to forget consists of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from qunlearn.methods.schedule import Depth
from qunlearn.runs.data_config import MOVED
from qunlearn.runs.provenance import TABLE, Provenance, separated
from qunlearn.training.config import ComputeConfig, Config


def pairs(entries: Any) -> Any:
    """`[{"beta": 1}, "alpha=0.5"]`, from a file and from flags, as one table; the last wins."""
    if isinstance(entries, Mapping):
        return dict(entries)
    table: dict[str, object] = {}
    for entry in entries:
        if isinstance(entry, Mapping):
            table |= entry
            continue
        name, sign, value = str(entry).partition("=")
        if not sign or not name:
            raise ValueError("write --set NAME=VALUE, such as --set alpha=0.5")
        table[name.strip()] = value.strip()
    return table


def number_of_steps(text: Any) -> Any:
    """What a budget of steps is read from; a time, as `audit all --budget 10m` has, is none."""
    try:
        float(0 if text is None else text)
    except (TypeError, ValueError):
        raise ValueError(
            "give a number of steps, as 300, or a fraction of Retrain's, as 0.05"
        ) from None
    return text


WAYS = {"random": "--random", "classes": "--class", "ids": "--ids", "where": "--where"}
"""The ways to ask, and their flags."""


class RequestConfig(Config):
    """Which samples are to be forgotten."""

    panel: ClassVar[str] = "What to forget (one of these)"

    random: float | None = Field(
        None, description="A random fraction of the retained samples, such as 0.1."
    )
    classes: tuple[str, ...] | None = Field(
        None,
        description="A whole class, by number or name; may be given several times.",
        json_schema_extra={"flag": "--class", "metavar": "K", "repeated": True},
    )
    ids: Path | None = Field(None, description="The samples listed in a file: CSV, JSON or text.")
    column: str | None = Field(
        None, description="The column of --ids that holds the ids; `id` by default."
    )
    where: str | None = Field(
        None, description='The samples whose metadata match a rule, such as "user == 42".'
    )
    forget_seed: int | None = Field(
        None, ge=0, description="Seed of --random; that of the split by default."
    )
    skip_unusable: bool = Field(
        False,
        description="Skip ids that are unknown, listed twice, forgotten already, or removed from "
        "the held-out or test part; without it they are an error. Their number is reported.",
    )

    def to_dict(self) -> dict[str, object]:
        """The settings as files have them: without the rule, whose value may name a person."""
        return {name: value for name, value in super().to_dict().items() if name != "where"}

    @classmethod
    def joined(
        cls, written: Mapping[str, object], flags: Mapping[str, object]
    ) -> dict[str, object]:
        """A flag that says what to forget replaces the file's; method settings are merged."""
        values = dict(written)
        if flags.keys() & {*WAYS, "requests"}:
            replaced = (*WAYS, "requests", "column", "skip_unusable")
            values = {name: v for name, v in values.items() if name not in replaced}
            _drop_record(values, "request")
        if "settings" in flags and "settings" in values:
            settings = flags["settings"]
            added = settings if isinstance(settings, list) else [settings]
            flags = {**flags, "settings": [values["settings"], *added]}
        if "run" in flags:
            _drop_record(values, "origin")
        if "data" in values:  # as --data is spelt in a file
            values["data_path"] = values.pop("data")
        if "data_dir" in values:  # as it was spelt once
            values["data_path"] = values.pop("data_dir")
        return {**values, **flags}


def _drop_record(settings: dict[str, object], name: str) -> None:
    """Remove an entry of the provenance that flags have overridden."""
    if isinstance(record := settings.get(TABLE), Mapping):
        settings[TABLE] = {key: value for key, value in record.items() if key != name}


class OriginConfig(Config):
    """The run that is to forget, and overrides where its data has moved."""

    panel: ClassVar[str] = "Where things are"

    run: Path = Field(
        ...,
        description="The folder of the run that is to forget.",
        json_schema_extra={"argument": True},
    )
    data_path: Path | None = Field(
        None, description=MOVED, json_schema_extra={"flag": "--data", "metavar": "PATH"}
    )
    metadata: Path | None = Field(
        None,
        description="A CSV with metadata of each sample, joined by its column `id`; by default the "
        "one that the run was made with.",
    )
    model: str | None = Field(None, description="The package.module:factory of a custom model.")
    provenance: Provenance | None = Field(
        None, description="On record in a run's folder.", json_schema_extra={"hidden": True}
    )

    @classmethod
    def modernised(cls, written: Mapping[str, object]) -> Mapping[str, object]:
        """What a file has, with its provenance in a table of its own."""
        return separated(written)

    @property
    def record(self) -> Provenance:
        """What is on record, if this is the configuration of a run that was made."""
        return self.provenance or Provenance()

    @property
    def changed(self) -> dict[str, object]:
        """What overrides the run's own record of its data."""
        recorded = {} if self.record.data is None else self.record.data.to_dict()
        return recorded if self.metadata is None else {**recorded, "metadata": self.metadata}


class ForgetConfig(OriginConfig, RequestConfig, ComputeConfig):
    """Everything that makes a run that has forgotten."""

    panel: ClassVar[str] = "How to forget"

    requests: Path | None = Field(
        None,
        description="A CSV with one request per row, in the columns id (or rule), received (its "
        "date) and reference.",
    )
    received: str | None = Field(
        None,
        description="The date the request was received, such as 2026-11-18; for the ledger.",
        json_schema_extra={"metavar": "DATE"},
    )
    reference: str | None = Field(
        None, description="Your reference for the request, such as a ticket number; for the ledger."
    )
    method: str = Field(
        "calibrated", description="See `qunlearn methods`; or your own as package.module:name."
    )
    settings: Annotated[dict[str, Any], BeforeValidator(pairs)] = Field(
        default_factory=dict,
        description="A setting of the method, such as alpha=0.5; may be given several times.",
        json_schema_extra={"flag": "--set", "metavar": "NAME=VALUE", "repeated": True},
    )
    start_from: Path | None = Field(
        None,
        description="For --method retrain only, if RUN was trained from the weights of another "
        "run: that run's Retrain, which provides the initial weights.",
    )
    depth: Depth | None = Field(
        None,
        description="deep: forgetting withstands later fine-tuning. shallow: fewer steps, but "
        "fine-tuning can bring samples back. By default deep if the network has memorised the "
        "samples; else shallow, then deep if fine-tuning brings them back. Same as --set depth=...",
    )
    budget: Annotated[float | None, BeforeValidator(number_of_steps)] = Field(
        None,
        gt=0,
        description="Maximum number of steps, as 300, or as a fraction of a Retrain's, as 0.05.",
    )
    skip_probe: bool = Field(
        False,
        description="Skip the test of whether fine-tuning on retained samples brings forgotten "
        "ones back.",
    )
    epochs: int | None = Field(None, description="Same as --set epochs=N, and overrides it.")
    seed: int | None = Field(None, description="Same as --set seed=N, and overrides it.")

    @property
    def method_settings(self) -> dict[str, object]:
        """The method's settings as given."""
        short = {"depth": self.depth, "epochs": self.epochs, "seed": self.seed}
        return self.settings | {k: v for k, v in short.items() if v is not None}
