"""What a comparison consists of."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from qunlearn.audit.pool_folder import PoolConfig
from qunlearn.data.rules import parse_rule
from qunlearn.errors import UserError
from qunlearn.methods import all_methods, find_method
from qunlearn.runs.request import OriginConfig, RequestConfig, pairs
from qunlearn.study.executors.config import ExecutorConfig
from qunlearn.training.config import ComputeConfig

Select = Literal["heldout", "oracle"]

Settings = Mapping[str, object]
"""A method's settings, by name."""


class CompareConfig(OriginConfig, RequestConfig, ExecutorConfig, ComputeConfig):
    """Everything that makes a comparison."""

    panel: ClassVar[str] = "The comparison"
    file_name: ClassVar[str] = "compare.toml"

    methods: str = Field(
        "all",
        description="Which methods, with commas between, or all; a variant as calibrated[alpha=0], "
        "with semicolons between several settings. Retrain is always there.",
    )
    seeds: int = Field(3, ge=1, description="How many seeds; all forget the same samples.")
    settings: Annotated[dict[str, Any], BeforeValidator(pairs)] = Field(
        default_factory=dict,
        description="A setting of a method, as oeu.lr=0.03; may be given several times.",
        json_schema_extra={"flag": "--set", "metavar": "METHOD.NAME=VALUE", "repeated": True},
    )
    settings_from: Path | None = Field(
        None,
        description="A finished comparison's table.json; each method's settings are taken from it.",
    )
    retrains_from: Path | None = Field(
        None,
        description="For a network that was trained from another run's: that run's comparison for "
        "the same request; each Retrain starts from the one of its seed there.",
    )
    tune: int = Field(
        0, ge=0, description="Search each method's settings with so many trials, on seed 0."
    )
    select: Select = Field(
        "heldout",
        description="What the search looks at: only the held-out part, or Retrain (oracle).",
    )

    join: bool = Field(
        False,
        description="Help with the comparison that another machine makes in --out, a shared "
        "folder: its cells and its searches are shared. That machine writes the table.",
        exclude=True,
    )

    @property
    def names(self) -> list[str]:
        """The methods beside Retrain, in the order of the table."""
        words = [n.strip() for n in re.split(r",(?![^\[]*\])", self.methods) if n.strip()]
        every = [method.name for method in all_methods() if method.name != "retrain"]
        names = [name for word in words for name in (every if word == "all" else [word])]
        for name in names:
            find_method(variant(name)[0])
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice:
            raise UserError(f"The method {twice!r} is named twice in --methods; name it once.")
        return [name for name in names if name != "retrain"]

    def settings_for(self, method: str) -> Settings:
        """The settings given for one method."""
        chosen = {}
        base, fixed = variant(method)
        compared = {"retrain", *(variant(name)[0] for name in self.names)}
        for spelt, value in self.settings.items():
            named, dot, name = spelt.rpartition(".")
            if not dot:
                raise UserError(
                    f"--set {spelt}= names no method; write METHOD.NAME=VALUE, as oeu.lr=0.03."
                )
            if named not in compared:
                raise UserError(
                    f"--set {spelt}= speaks of {named!r}, which is not compared; compared are "
                    f"retrain, {', '.join(self.names)}."
                )
            if named == base:
                chosen[name] = value
        return chosen | fixed

    def origin(self) -> dict[str, object]:
        """What every cell is asked: the run, the samples, the machine."""
        shared = {*OriginConfig.model_fields, *RequestConfig.model_fields}
        shared |= set(ComputeConfig.model_fields)
        values = {name: getattr(self, name) for name in shared if name in self.model_fields_set}
        if (threads := self.threads_of_cell(self.threads)) is not None:
            values["threads"] = threads
        return values

    @property
    def usual_out(self) -> Path:
        """The folder of the comparison if none is named: beside the run, called as the request."""
        run = self.run if self.run.name not in ("", "..") else self.run.resolve()
        words = [run.name, "compare"]
        if self.random is not None:
            words += ["random", f"{100 * self.random:g}"]
        if self.forget_seed is not None:
            words += ["seed", f"{self.forget_seed}"]
        words += ["class", *self.classes] if self.classes else []
        words += ["ids", self.ids.stem] if self.ids else []
        words += ["where", *sorted(parse_rule(self.where).columns())] if self.where else []
        return run.with_name(re.sub(r"[^\w.+-]+", "-", "-".join(words)).strip("-"))


class MakePoolConfig(PoolConfig, ExecutorConfig):
    """Which pool, and where its networks are made."""


def variant(name: str) -> tuple[str, dict[str, object]]:
    """A method and the settings that make a variant of it.

    >>> variant("oeu[alpha=0;pairing=once]")
    ('oeu', {'alpha': '0', 'pairing': 'once'})
    >>> variant("ft")
    ('ft', {})
    """
    match = re.fullmatch(r"([^\[\]]+?)\s*(?:\[([^\]]*)\])?", name)
    if not match:
        raise UserError(f"The method {name!r} cannot be read; write NAME or NAME[SETTING=VALUE].")
    parts = [part for part in (match[2] or "").split(";") if part.strip()]
    try:
        return match[1], pairs(parts)
    except ValueError as error:
        raise UserError(f"The variant {name!r} cannot be read: {error}.") from None


def folder_name(method: str) -> str:
    """What a method's folder is called; no two methods share one.

    >>> folder_name("oeu[alpha=0;pairing=once]"), folder_name("ft[lr=1e-5]")
    ('oeu-alpha=0-pairing=once', 'ft-lr=1e-5')
    >>> folder_name("my.module:name")
    'my.module-name-3b3743c4'
    """
    base, settings = variant(method)
    spelt = "-".join([base, *(f"{name}={value}" for name, value in settings.items())])
    safe = re.sub(r"[^\w.=+-]", "-", spelt).strip("-.")
    if safe == spelt:
        return safe
    return f"{safe}-{hashlib.sha256(spelt.encode()).hexdigest()[:8]}"


CELLS, TRIALS = "cells", "trials"
"""Where a comparison keeps its runs, and those of its searches."""

SEARCHES = "searches"
"""Where it keeps the journals of its searches."""
