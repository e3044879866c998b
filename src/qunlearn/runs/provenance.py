"""What `config.toml` has on record beside what was asked: how the request was resolved."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from qunlearn.runs.data_config import DataConfig
from qunlearn.runs.lines import RequestLine
from qunlearn.store.layout import CONFIG
from qunlearn.store.run import Run
from qunlearn.store.typed import typed
from qunlearn.training.config import Config

TABLE = "provenance"
"""The table of `config.toml` that it stands in."""


class Recipe(Config):
    """How a network was trained; whatever it has forgotten since keeps that on record."""

    training: dict[str, Any] = Field(default_factory=dict, description="The optimizer's settings.")
    from_scratch: bool = Field(False, description="Whether it began with random weights.")
    network: str | None = Field(None, description="The digest of its weights.")
    start: str | None = Field(None, description="The digest of the weights that it began with.")


class Provenance(Config):
    """The digests and settings that a request was resolved to."""

    origin: str | None = Field(None, description="The digest of the weights before forgetting.")
    start: str | None = Field(None, description="The digest of the weights that it started from.")
    request: str | None = Field(None, description="The digest of the ids of the request.")
    data: DataConfig | None = Field(None, description="Where the data was.")
    recipe: Recipe | None = Field(None, description="How the network was trained.")
    lines: tuple[RequestLine, ...] | None = Field(None, description="Whose requests were met.")


@dataclass(frozen=True)
class RecordedRequest:
    """What a run that has forgotten was asked.

    Attributes:
        run: The path of the run that was to forget, as it was then.
        method: How.
        settings: The method's settings.
    """

    run: str
    method: str
    settings: Mapping[str, object]


def request_of(run: Run) -> RecordedRequest:
    """What a run that has forgotten was asked."""
    return typed(RecordedRequest, run.config, run.path / CONFIG)


def provenance_of(run: Run) -> Provenance:
    """What a run has on record."""
    record = separated(run.config).get(TABLE, {})
    return typed(Provenance, record, run.path / CONFIG)


def lines_of(run: Run) -> tuple[RequestLine, ...]:
    """The requests that a run answers, one line each; none where that is not on record."""
    return provenance_of(run).lines or ()


RENAMED = {"origin_digest": "origin", "start_digest": "start", "asked": "request"}
"""What earlier versions called these, when they stood among the settings."""


def separated(config: Mapping[str, object]) -> dict[str, object]:
    """Settings with their provenance in a table of its own, as earlier versions did not write it.

    >>> separated({"random": 0.1, "asked": "ab", "recipe": {"lr": 0.1, "network": "cd"}})
    ... # doctest: +NORMALIZE_WHITESPACE
    {'random': 0.1,
     'provenance': {'request': 'ab', 'recipe': {'network': 'cd', 'training': {'lr': 0.1}}}}
    """
    settings = dict(config)
    record = {new: settings.pop(old) for old, new in RENAMED.items() if old in settings}
    if isinstance(settings.get("data"), Mapping):
        record["data"] = settings.pop("data")
    if isinstance(recipe := settings.pop("recipe", None), Mapping):
        names = ("from_scratch", "network", "start")
        start = {name: recipe[name] for name in names if name in recipe}
        training = {name: value for name, value in recipe.items() if name not in start}
        record["recipe"] = {**start, "training": training}
    if record:  # as it was written before the methods had their present names
        settings |= {name: _renamed(settings[name]) for name in NAMED if name in settings}
    return settings | ({TABLE: record} if record else {})


NAMED = ("method", "methods")
"""The settings that name methods."""


def _renamed(methods: object) -> str:
    """Methods by their present names: until 0.2.0, `oeu` was `calibrated`, and `oeu-paper` `oeu`.

    >>> _renamed("oeu,ft,oeu-paper[alpha=0]")
    'calibrated,ft,oeu[alpha=0]'
    """
    now = {"oeu": "calibrated", "oeu-paper": "oeu"}
    return re.sub(r"(?<![\w-])oeu(-paper)?(?![\w-])", lambda name: now[name[0]], str(methods))
