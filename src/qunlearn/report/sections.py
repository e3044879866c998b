"""What both kinds of page share: figures made from outputs, and how to run it again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qunlearn.parts import detail_words
from qunlearn.quant import QuantSpec
from qunlearn.report.drawing import Drawn
from qunlearn.report.heat import heat_map
from qunlearn.report.html import counted
from qunlearn.report.words import conflict_words
from qunlearn.runs.explain import conflict_of
from qunlearn.runs.metrics import metrics_of
from qunlearn.runs.provenance import asked_of
from qunlearn.store.info import RunInfo
from qunlearn.store.run import Run
from qunlearn.store.weights import read_header


@dataclass(frozen=True)
class OutputFigures:
    """Figures made from what models answered.

    Attributes:
        confidence: How confident each model is in the truth, part by part.
        spread: How the answer is spread over the classes, on all forgotten samples.
        one: The same on one of them.
        words: Which one it is, and what to look for.
        before: Whether the model before forgetting is shown.
        retrain: Whether a Retrain's line is there, too.
        whole_classes: Whether nothing is retained of the forgotten classes.
    """

    confidence: list[Drawn]
    spread: list[Drawn]
    one: list[Drawn]
    words: str
    before: bool
    retrain: bool
    whole_classes: bool

    @property
    def drawn(self) -> list[Drawn]:
        """All of them."""
        return [*self.confidence, *self.spread, *self.one]


def conflict_figures(runs: Mapping[str, Run]) -> list[tuple[Drawn, str]]:
    """Where forgetting and retaining were in conflict, with words, of runs that recorded it."""
    conflicts = {
        name: conflict_of(run.path)
        for name, run in runs.items()
        if any(row.conflict is not None for row in run.history)
    }
    return [(heat_map(name, each), conflict_words(each)) for name, each in conflicts.items()]


def request_words(samples: int, kind: str, detail: Mapping[str, Any]) -> str:
    """What was to be forgotten."""
    words = detail_words(detail)
    return f"{counted(samples, 'sample')} ({kind}{': ' if words else ''}{words})"


def settings_used(run: Run) -> dict[str, object]:
    """A run's settings, with those that were left to the method."""
    return {**asked_of(run).settings, **metrics_of(run).chosen}


def network_of(run: Run) -> dict[str, object]:
    """What a run's network is and what it was trained on, as rows of a table."""
    header = read_header(run.model_path)
    model, spec = header["model"], QuantSpec.from_dict(header["quant"])
    size = "" if model["width"] == 1 else f" at {model['width']:g} of its width"
    bits = (
        "full precision"
        if spec.full_precision
        else f"bits of weights {spec.weights or 32}, of inputs {spec.activations or 32}, "
        f"in the first and last layer {spec.first_last_bits or 32} ({spec.quantizer})"
    )
    return {"data set": header["dataset"], "network": f"{model['name']}{size}; {bits}"}


def dates_of(infos: Iterable[RunInfo]) -> str:
    """When the first of some runs was begun, and the last finished, in a sentence."""
    dated = [(i.begun, i.finished) for i in infos if i.begun is not None and i.finished is not None]
    if not dated:
        return "When it was made is not on record."
    begun, finished = min(dated)[0], max(finished for _, finished in dated)
    return f"Begun {moment(begun)}, finished {moment(finished)}."


def moment(written: str) -> str:
    """A moment as people read it.

    >>> moment("2026-11-18T18:00:11Z")
    '2026-11-18 18:00:11 UTC'
    """
    return re.sub(r"^(\d{4}-\d\d-\d\d)T([\d:]+)Z$", r"\1 \2 UTC", written)


def again_command(
    command: str, file: Path, config: Mapping[str, object], names: Sequence[str]
) -> str:
    """The words that make a folder again; code of one's own has to be typed again, as `names`.

    >>> again_command("forget", Path("my runs/a.toml"), {"model": "nets:make"}, ["model"])
    "qunlearn forget --config 'my runs/a.toml' --model nets:make --out NEW"
    """
    typed = [
        word
        for name in names
        if ":" in str(config.get(name, ""))
        for word in (f"--{name}", str(config[name]))
    ]
    return shlex.join(["qunlearn", command, "--config", str(file), *typed, "--out", "NEW"])


def facts_of(info: RunInfo) -> dict[str, object]:
    """A run's versions and machine, as rows of a table."""
    facts = {"versions": info.versions, "machine": vars(info.machine)}
    return {
        key: ", ".join(f"{name} {value}" for name, value in values.items())
        for key, values in facts.items()
    }
