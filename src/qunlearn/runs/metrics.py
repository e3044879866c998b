"""The scores of a run and the findings of its method: `metrics.json`, typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qunlearn.data import Outcome, Split
from qunlearn.errors import UserError
from qunlearn.methods.base import Findings
from qunlearn.methods.calibration import Calibration
from qunlearn.methods.relearn import Relearning
from qunlearn.metrics import Scores
from qunlearn.metrics.membership import REPORTED
from qunlearn.store.info import DeclaredCheck
from qunlearn.store.layout import METRICS
from qunlearn.store.run import Run
from qunlearn.store.typed import Json, typed, untyped

RENAMED = {
    "aimed": "target",
    "gone": "class_wise",
    "sharpened": "logit_scale",
}
"""What earlier versions called the fields of a calibration."""


@dataclass(frozen=True)
class Duplicates:
    """Samples to forget that are retained under other ids too.

    Attributes:
        copies: The id of such a sample, and the id that is retained.
    """

    copies: Mapping[str, str]


@dataclass(frozen=True)
class RunMetrics(Scores):
    """The scores of a run's network, and what is known beside them.

    Attributes:
        before: The scores of the network before it forgot; None if it has forgotten nothing.
        whole_classes: Whether nothing is retained of the classes that were to be forgotten.
        chosen: Settings that the method chose itself.
        calibration: The target that the method had, and what it reached.
        relearning: What fine-tuning on retained samples brought back, on a copy.
        duplicates: Samples to forget that are retained under other ids too.
        request: What was retired and skipped of the request.
        declared: The name of a reference that was trained elsewhere, and what was checked about it.
    """

    before: Scores | None = None
    whole_classes: bool = False
    chosen: Mapping[str, object] = field(default_factory=dict)
    calibration: Calibration | None = None
    relearning: Relearning | None = None
    duplicates: Duplicates | None = None
    request: Outcome | None = None
    declared: Declared | None = None

    def to_json(self) -> Json:
        """As it stands in `metrics.json`."""
        written = super().to_json()
        if self.before is not None:
            written["before"] = self.before.to_json()
        if self.whole_classes:
            written["whole_classes"] = True
        if self.chosen:
            written["chosen"] = dict(self.chosen)
        for name in ("calibration", "relearning", "duplicates", "request", "declared"):
            if (value := getattr(self, name)) is not None:
                written[name] = untyped(value)
        return written


@dataclass(frozen=True)
class Declared:
    """A Retrain that was trained elsewhere: the name of its run, and what was checked about it."""

    name: str
    checked: DeclaredCheck | str


def metrics_of(run: Run) -> RunMetrics:
    """What is measured on a run, from its folder."""
    metrics = typed(RunMetrics, modernise(run.metrics), run.path / METRICS)
    info, needed = run.info, {"forget", "retain", "test"}
    forgot = info.method is not None and info.declared is None
    scored = (metrics, metrics.before, metrics.reference)
    lacks = (
        "no part is measured"
        if not metrics.parts
        else "the scores before forgetting are missing"
        if forgot and metrics.before is None
        else "a part is missing that MIA is about"
        if any(each and each.complete and not needed <= each.parts.keys() for each in scored)
        else "the forgotten part is missing"
        if metrics.before and not all("forget" in each.parts for each in scored if each)
        else ""
    )
    if lacks:
        raise UserError(
            f"The content of {str(run.path / METRICS)!r} is invalid ({lacks}); restore the file "
            "from a copy, or make the run again."
        )
    return metrics


def modernise(content: object) -> object:
    """Metrics as earlier versions wrote them, in place, as they are written now."""
    if not isinstance(content, dict):
        return content
    for scores in (content, content.get("before"), content.get("reference")):
        if isinstance(scores, dict) and "MIA" in scores:  # there were no other attacks once
            attacks = scores.get("attacks")
            others = attacks if isinstance(attacks, dict) else {}
            scores["attacks"] = {REPORTED: scores["MIA"]} | others
    if isinstance(calibration := content.get("calibration"), dict):
        content["calibration"] = {**_before(content), **_renamed(calibration)}
    return content


def _renamed(content: object) -> Any:
    if not isinstance(content, dict):
        return content
    return {RENAMED.get(key, key): _renamed(value) for key, value in content.items()}


def _before(content: Json) -> dict[str, float]:
    """The mean confidence before forgetting, which the calibration itself did not always have."""
    try:
        return {"before": 100 * content["before"]["parts"]["forget"]["confidence"]}
    except (LookupError, TypeError):
        return {}


def forgotten_metrics(
    scores: Scores, before: Scores | None, findings: Findings, split: Split
) -> RunMetrics:
    """What is measured on a network that has forgotten, and what its method found."""
    copies = split.duplicates()
    return RunMetrics(
        **vars(scores),
        before=before,
        whole_classes=split.whole_classes,
        chosen=findings.chosen,
        calibration=findings.calibration,
        relearning=findings.relearning,
        duplicates=Duplicates(copies) if copies else None,
        request=split.outcome(),
    )
