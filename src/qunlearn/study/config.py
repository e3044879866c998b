"""What a comparison consists of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from qunlearn.errors import UserError
from qunlearn.methods import all_methods, find_method
from qunlearn.methods.config import WAYS, OriginConfig, RequestConfig, pairs
from qunlearn.training.config import ComputeConfig

Select = Literal["heldout", "oracle"]


class CompareConfig(OriginConfig, RequestConfig, ComputeConfig):
    """Everything that makes a comparison."""

    panel: ClassVar[str] = "The comparison"

    methods: str = Field(
        "all", description="Which methods, with commas between, as oeu,ft; Retrain is always there."
    )
    seeds: int = Field(3, ge=1, description="How many seeds; all forget the same samples.")
    settings: Annotated[dict[str, Any], BeforeValidator(pairs)] = Field(
        default_factory=dict,
        description="A setting of a method, as oeu.lr=0.03; may be given several times.",
        json_schema_extra={"flag": "--set", "metavar": "METHOD.NAME=VALUE", "repeated": True},
    )
    tune: int = Field(
        0, ge=0, description="Search each method's settings with so many trials, on seed 0."
    )
    select: Select = Field(
        "heldout",
        description="What the search looks at: only the held-out part, or Retrain (oracle).",
    )
    workers: int = Field(1, ge=1, description="How many cells to make at a time.")

    @classmethod
    def joined(cls, written: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Another way to ask replaces the file's; settings are put beside the file's."""
        kept = dict(written)
        if given.keys() & WAYS.keys():
            kept = {name: v for name, v in kept.items() if name not in WAYS}
        if "settings" in given and "settings" in kept:
            given = {**given, "settings": [kept["settings"], *given["settings"]]}
        return {**kept, **given}

    @property
    def names(self) -> list[str]:
        """The methods beside Retrain, in the order of the table."""
        if self.methods == "all":
            return [m.name for m in all_methods() if m.name != "retrain"]
        names = [name.strip() for name in self.methods.split(",") if name.strip()]
        for name in names:
            find_method(name)
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice:
            raise UserError(f"The method {twice!r} is named twice in --methods; name it once.")
        return [name for name in names if name != "retrain"]

    def settings_for(self, method: str) -> dict[str, Any]:
        """The settings given for one method."""
        own = {}
        for spelt, value in self.settings.items():
            who, dot, name = spelt.rpartition(".")
            if not dot:
                raise UserError(
                    f"--set {spelt}= names no method; write METHOD.NAME=VALUE, as oeu.lr=0.03."
                )
            if who not in ("retrain", *self.names):
                raise UserError(
                    f"--set {spelt}= speaks of {who!r}, which is not compared; compared are "
                    f"retrain, {', '.join(self.names)}."
                )
            if who == method:
                own[name] = value
        return own

    def origin(self) -> dict[str, Any]:
        """What every cell is asked: the run, the samples, the machine."""
        shared = {*OriginConfig.model_fields, *RequestConfig.model_fields}
        shared |= set(ComputeConfig.model_fields)
        return {name: getattr(self, name) for name in shared if name in self.model_fields_set}


PLACE = Path("cells")
"""Where a comparison keeps its runs."""
