"""The first screen, for a reader who does not know the field's letters: four answers in words."""

from __future__ import annotations

from dataclasses import dataclass

from qunlearn.methods.relearn import Relearning
from qunlearn.metrics import Scores
from qunlearn.report.beside import Beside
from qunlearn.report.html import counted
from qunlearn.report.verdict import EXACT, HARM, PROOF, SMALLEST, Verdict
from qunlearn.runs.metrics import RunMetrics

FORGOT, GOOD, CERTAINTY, REQUEST = (
    "Did the model forget?",
    "Did it stay good?",
    "How sure are we?",
    "What was asked, and when?",
)


@dataclass(frozen=True)
class Answer:
    """One of the four: a question, and its answer in a sentence or a few."""

    question: str
    words: str


@dataclass(frozen=True)
class Accuracies:
    """The share of samples that a network gets right, in percent.

    Attributes:
        forgotten: Of the forgotten samples.
        retained: Of the retained samples.
        new: Of the test samples; None if there is no test part.
    """

    forgotten: float
    retained: float
    new: float | None

    @classmethod
    def of(cls, scores: Scores) -> Accuracies:
        """Those of a network."""
        parts = {name: part.accuracy for name, part in scores.parts.items()}
        return cls(parts["forget"], parts.get("retain", parts["forget"]), parts.get("test"))


def run_answers(metrics: RunMetrics, verdict: Verdict) -> list[Answer]:
    """The answers on a run that has forgotten; what was asked is for whoever knows it to add."""
    assert metrics.before is not None, "a run that has forgotten nothing gets no verdict"
    after, before = Accuracies.of(metrics), Accuracies.of(metrics.before)
    retrain = None if metrics.reference is None else Accuracies.of(metrics.reference)
    certainty = [
        _chance_words(metrics.parts["forget"].samples, max(SMALLEST, verdict.chance)),
        "The model was compared with one that was retrained without these samples."
        if retrain is not None
        else "There is no model retrained without these samples to compare with, so they were "
        "compared with samples that the model never saw.",
        _probe_words(metrics.relearning),
        PROOF,
    ]
    if EXACT in verdict.cautions:
        certainty = [certainty[0], EXACT]
    return [
        Answer(FORGOT, f"{verdict.answer} {_forgotten_words(metrics, after, before, retrain)}"),
        Answer(GOOD, good_words(after, before, retrain)),
        Answer(CERTAINTY, " ".join(words for words in certainty if words)),
    ]


def comparison_answers(method: str, view: Beside, verdict: Verdict, seeds: int) -> list[Answer]:
    """The answers of a comparison, about the method nearest to Retrain."""
    after, before, retrain = (
        Accuracies(figures["FA"], figures["RA"], figures["TA"])
        for figures in (view.after, view.before, view.retrain)
    )
    right = (
        f"By {method}, the method that comes nearest to retraining, the share of the forgotten "
        f"samples that it gets right went from {before.forgotten:.1f} % to {after.forgotten:.1f} %;"
        f" a model retrained without them gets {retrain.forgotten:.1f} %."
    )
    certainty = [
        _chance_words(view.samples["forget"], view.coarse),
        f"Everything was done {seeds} times, and {seeds} models were retrained to compare with."
        if seeds > 1
        else "Everything was done once: how much of a difference is chance is not known.",
        PROOF,
    ]
    return [
        Answer(FORGOT, f"{verdict.answer} {right}"),
        Answer(GOOD, good_words(after, before, retrain)),
        Answer(CERTAINTY, " ".join(certainty)),
    ]


def good_words(after: Accuracies, before: Accuracies, retrain: Accuracies | None = None) -> str:
    """Whether the model is as good as before at what it should keep, and on new samples.

    Worse than before is no harm where a retrained model is as much worse: it has fewer samples to
    learn from.

    >>> print(good_words(Accuracies(70, 99.9, 88), Accuracies(99, 100, 89)))
    ... # doctest: +NORMALIZE_WHITESPACE
    Yes: its accuracy is 99.9 % on retained samples (100.0 % before), and 88.0 % on new samples
    (89.0 % before).
    >>> good_words(Accuracies(70, 90, None), Accuracies(99, 100, None))
    'No: its accuracy is 90.0 % on retained samples (100.0 % before).'
    """
    usual = retrain or before
    falls = [min(before.retained, usual.retained) - after.retained]
    words = f"its accuracy is {after.retained:.1f} % on retained samples ({before.retained:.1f} % "
    words += f"before, {retrain.retained:.1f} % if retrained)" if retrain else "before)"
    if after.new is not None and before.new is not None:
        falls.append(min(before.new, before.new if usual.new is None else usual.new) - after.new)
        words += f", and {after.new:.1f} % on new samples ({before.new:.1f} % before"
        words += f", {retrain.new:.1f} % if retrained)" if retrain and retrain.new else ")"
    word = "Yes" if max(falls) <= SMALLEST else "Nearly" if max(falls) <= HARM else "No"
    return f"{word}: {words}."


def _forgotten_words(
    metrics: RunMetrics, after: Accuracies, before: Accuracies, retrain: Accuracies | None
) -> str:
    """How many of the forgotten samples are right, beside the best comparison there is."""
    unseen = metrics.parts.get("held_out") or metrics.parts.get("test")
    beside = (
        f"; a model retrained without them gets {retrain.forgotten:.1f} %"
        if retrain is not None
        else "; a model that never saw their classes gets none right"
        if metrics.whole_classes
        else f"; of samples that it never saw, it gets {unseen.accuracy:.1f} % right"
        if unseen is not None
        else ""
    )
    return (
        f"Before, it got {before.forgotten:.1f} % of the forgotten samples right; now it gets "
        f"{after.forgotten:.1f} %{beside}."
    )


def _chance_words(samples: int, chance: float) -> str:
    return (
        f"With {counted(samples, 'forgotten sample')}, differences of up to {chance:.0f} points "
        "may be chance."
    )


def _probe_words(probe: Relearning | None) -> str:
    if probe is None:
        return "Whether further training brings the samples back was not tested."
    if probe.deep:
        return "Further training on retained samples did not bring the forgotten ones back."
    return "Further training on retained samples brings forgotten ones back."


def request_answer_of(
    request: str, retained: int, dates: str, *, received: str | None = None, took: str = ""
) -> Answer:
    """What was asked, and when.

    >>> request_answer_of("30 samples (random)", 270, "Begun now.", received="2026-11-18").words
    'To forget 30 samples (random), and to keep 270. Received 2026-11-18. Begun now.'
    """
    words = [f"To forget {request}, and to keep {retained:,}."]
    words += [f"Received {received}."] if received else []
    return Answer(REQUEST, " ".join(word for word in (*words, dates, took) if word))
