"""The one verdict on a run that has forgotten: the command line and the page both print it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from qunlearn.metrics import Scores
from qunlearn.metrics.gap import half_width
from qunlearn.metrics.membership import weakest_attack
from qunlearn.parts import part_name
from qunlearn.report.alone import alone
from qunlearn.report.beside import Beside, beside_retrain
from qunlearn.report.relearning import judged_by_relearning
from qunlearn.report.target import judged_by_target, target_words
from qunlearn.report.verdict import EXACT, HARM, Verdict
from qunlearn.report.words import declared_words
from qunlearn.runs.metrics import RunMetrics

GENTLER = "A smaller learning rate forgets less: try half of it (--set lr=...), or fewer epochs."


def verdict_of(metrics: RunMetrics, method: str | None = None) -> Verdict:
    """The answer, from what was measured: by Retrain if it is there, else by the method's target.

    Args:
        metrics: A run's, with `before`; with `reference` if it was compared.
        method: What made the network forget; a Retrain has forgotten by construction.
    """
    before, target = metrics.before, metrics.calibration
    assert before is not None, "a run that has forgotten nothing gets no verdict"
    if metrics.reference is not None:
        verdict = _compared(metrics, before, metrics.reference)
    else:
        verdict = alone(metrics, before, whole_class=metrics.whole_classes)
        if target:
            outgrown = gained(metrics, before) > HARM
            verdict = judged_by_target(verdict, target, outgrown=outgrown)
    if target:
        reasons = (target_words(target), *verdict.reasons)
        verdict = replace(verdict, met=target.met and verdict.met, reasons=reasons)
    if metrics.relearning is not None and method != "retrain":
        then, now = (each.parts["forget"].confidence for each in (before, metrics))
        verdict = judged_by_relearning(verdict, metrics.relearning, target, 100 * (then - now))
    if method == "retrain" and metrics.reference is None:
        headline = "by construction, since the network was trained anew without these samples."
        exact = replace(verdict, level="yes", word="Yes", headline=headline, met=True)
        return replace(exact, cautions=(EXACT,))
    if verdict.level == "too-much" and verdict.met:
        verdict = replace(verdict, reasons=(*verdict.reasons, GENTLER))
    if back := resurfaced(metrics, before):
        verdict = replace(verdict, met=False, reasons=(*map(str, back), *verdict.reasons))
        if verdict.level in ("yes", "mostly", "unsure"):
            headline = "the model knows samples again that an earlier request made it forget."
            verdict = replace(verdict, level="no", word="Not cleanly", headline=headline)
    return verdict


def measured_again(
    stored: RunMetrics, measured: RunMetrics, *, all_parts: bool = True
) -> RunMetrics | None:
    """A run's metrics with what was measured now, to judge it by; None if that cannot be.

    Args:
        stored: The run's metrics as it was made.
        measured: What was measured now; samples that were erased since are missing.
        all_parts: Whether the stored scores may stand for these.
    """
    if stored.before is None or not (all_parts or "forget" in measured.parts):
        return None
    present = {name: value for name, value in vars(measured).items() if value}
    return replace(stored, **{**present, "parts": {**stored.parts, **measured.parts}})


@dataclass(frozen=True)
class Resurfaced:
    """Samples of an earlier request that a later one has brought back.

    Attributes:
        part: Their part of the split.
        before: The mean confidence in the true label before the last request, in percent.
        now: The same now.
    """

    part: str
    before: float
    now: float

    def __str__(self) -> str:
        return (
            f"Came back: on the samples {part_name(self.part)}, the mean confidence in the true "
            f"label rose from {self.before:.1f} % to {self.now:.1f} % by the last request. "
            "Forgetting both requests at once, from the run before the earlier one, avoids it."
        )


def gained(metrics: Scores, before: Scores) -> float:
    """By how many points the confidence on unseen samples rose; 0 if it fell."""
    part = "held_out" if "held_out" in metrics.parts else "test"
    if part not in metrics.parts or part not in before.parts:
        return 0.0
    rise = metrics.parts[part].confidence - before.parts[part].confidence
    return max(0.0, 100 * rise)


def resurfaced(metrics: Scores, before: Scores) -> list[Resurfaced]:
    """The earlier requests whose samples came back, beyond chance and what unseen ones gained."""
    now, then = metrics.parts, before.parts
    risen = []
    for part, scores in now.items():
        if not part.startswith("forget_") or part not in then:
            continue
        each = Resurfaced(part, 100 * then[part].confidence, 100 * scores.confidence)
        chance = half_width(each.now, scores.samples)
        if each.now - each.before - gained(metrics, before) > max(HARM, chance):
            risen.append(each)
    return risen


def _compared(metrics: RunMetrics, before: Scores, retrain: Scores) -> Verdict:
    verdict = beside_retrain(
        Beside(
            after=metrics.figures,
            before=before.figures,
            retrain=retrain.figures,
            samples={part: scores.samples for part, scores in metrics.parts.items()},
            gap=metrics.AG,
            attack=weakest_attack([metrics.attack_accuracy, retrain.attack_accuracy]),
        )
    )
    if metrics.declared is None:
        return verdict
    return replace(verdict, cautions=(declared_words(metrics.declared), *verdict.cautions))
