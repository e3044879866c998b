"""Findings in words: the sentences that the command line, the page and Python share."""

from __future__ import annotations

from itertools import islice

from qunlearn.data import Outcome
from qunlearn.parts import counted
from qunlearn.runs.metrics import Declared, Duplicates, RunMetrics

SHOWN = 5
"""How many duplicates are named."""


def findings_words(metrics: RunMetrics) -> list[str]:
    """What is known of a run beside its scores, a paragraph each."""
    words = [
        metrics.declared and declared_words(metrics.declared),
        metrics.request and request_words(metrics.request),
        metrics.duplicates and duplicates_words(metrics.duplicates),
    ]
    return [each for each in words if each]


def declared_words(declared: Declared) -> str:
    """What is known of a Retrain that was trained elsewhere."""
    return (
        f"The Retrain {declared.name!r} was declared, not made here: that it was trained without "
        f"the forgotten samples is its owner's word. {declared.checked}"
    )


def request_words(outcome: Outcome) -> str:
    """What was retired and skipped of a request."""
    sentences = [f"Samples forgotten: {outcome.forgotten:,}"]
    if retired := sum(outcome.retired.values()):
        parts = counted({part.replace("_", " "): n for part, n in outcome.retired.items()})
        sentences[0] += f", retired: {retired:,} ({parts}), which are no longer measured on"
    if not outcome.forgotten:
        sentences.append("None was trained on, so the weights are unchanged")
    if outcome.skipped:
        sentences.append(f"Ids skipped: {counted(outcome.skipped)}")
    return ". ".join(sentences) + "."


def duplicates_words(duplicates: Duplicates) -> str:
    """Which samples to forget are retained under other ids."""
    copies = duplicates.copies
    shown = [f"{one} as {copy}" for one, copy in islice(copies.items(), SHOWN)]
    some = ", ".join(shown) + (", ..." if len(copies) > SHOWN else "")
    return (
        f"Forgotten samples that are retained under other ids too: {len(copies):,} ({some}). The "
        "network still knows them; ask to forget the copies too."
    )
