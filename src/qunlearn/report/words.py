"""Findings in words: the sentences that the command line, the page and Python share."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from qunlearn.data import Outcome
from qunlearn.parts import counts_words, part_name
from qunlearn.runs.check import Fault, FaultKind
from qunlearn.runs.explain import Conflict
from qunlearn.runs.metrics import Declared, Duplicates, RunMetrics
from qunlearn.store.info import DeclaredCheck, HeldOutCheck

if TYPE_CHECKING:
    from qunlearn.export.export import Exported

SHOWN = 5
"""How many duplicates are named."""


def findings_words(metrics: RunMetrics) -> list[str]:
    """What is known of a run beside its scores, a paragraph each."""
    words = [
        metrics.declared and declared_words(metrics.declared),
        metrics.request and outcome_words(metrics.request),
        metrics.duplicates and duplicates_words(metrics.duplicates),
    ]
    return [each for each in words if each]


def export_words(exported: Exported) -> str:
    """What an exported file is, and how well it agrees with the network."""
    integer = (
        f", {exported.integer_convolutions} of {exported.convolutions} convolutions in integers"
        if exported.target == "fast"
        else ""
    )
    return (
        f"{exported.path}: {exported.bytes:,} bytes, {exported.target}, opset {exported.opset}"
        f"{integer}. {exported.agreement}."
    )


def declared_words(declared: Declared) -> str:
    """What is known of a Retrain that was trained elsewhere."""
    return (
        f"The Retrain {declared.name!r} was declared, not made here: that it was trained without "
        f"the forgotten samples is its owner's word. {declared_check_words(declared.checked)}"
    )


def declared_check_words(check: DeclaredCheck | str) -> str:
    """What was checked about such a Retrain; earlier versions have it on record in words."""
    if isinstance(check, str):
        return check
    verdicts = "; ".join(f"{part_name(p)}: {check.verdicts[p]}" for p in sorted(check.verdicts))
    bits = "" if check.same_bits else " Its bits are not the run's."
    return f"Judged by its confidence, samples are: {verdicts}.{bits}"


def held_out_words(check: HeldOutCheck | str) -> str:
    """What the held-out part of an adopted network looks like.

    >>> held_out_words(HeldOutCheck("cannot be told", 3, "few samples"))
    'Held-out data cannot be checked: 3 samples are too few to distinguish them from either part.'
    """
    if isinstance(check, str):  # as earlier versions have it on record
        return check
    if check.verdict == "unseen":
        return "The held-out data looks unseen: confidence on it is as on the test part."
    if check.verdict == "mixed":
        return (
            "Some of the held-out data may have been trained on: confidence on it is higher than "
            "on the test part, and lower than on the training part."
        )
    reasons = {
        "no retained class": "no held-out sample is of a class that was trained on",
        "no test part": "there is no test part to compare with",
        "not memorised": "the network is not more confident on the training part than on the test "
        "part",
        "few samples": f"{check.samples} samples are too few to distinguish them from either part",
    }
    return f"Held-out data cannot be checked: {reasons.get(str(check.reason), check.verdict)}."


def outcome_words(outcome: Outcome) -> str:
    """What was retired and skipped of a request."""
    sentences = [f"Samples forgotten: {outcome.forgotten:,}"]
    if retired := sum(outcome.retired.values()):
        parts = counts_words({part.replace("_", " "): n for part, n in outcome.retired.items()})
        sentences[0] += f", retired: {retired:,} ({parts}), which are no longer measured on"
    if not outcome.forgotten:
        sentences.append("None was trained on, so the weights are unchanged")
    if outcome.skipped:
        sentences.append(f"Ids skipped: {counts_words(outcome.skipped)}")
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


FAULTS = {
    FaultKind.UNFINISHED: "The run {path!r} was not finished; resume it with --resume.",
    FaultKind.UNREADABLE: "{detail}",
    FaultKind.MISSING: "The file {path!r} is missing; restore it from a copy.",
    FaultKind.ADDED: "The file {path!r} was added: the run was finished without it.",
    FaultKind.OTHER_WEIGHTS: "run.json and checksums.txt of {path!r} name different weights.",
    FaultKind.UNKNOWN_CHECKSUM: "checksums.txt of {path!r} names {detail!r}, which is no part of "
    "a run.",
    FaultKind.LEFT_OVER: "{path!r} is left of a process that was interrupted; move it away.",
    FaultKind.NOT_A_FILE: "{path!r} is {detail}, which qunlearn does not write; move it away.",
    FaultKind.FOREIGN: "{path!r} is no part of what qunlearn writes here; move it away.",
}


def fault_words(fault: Fault) -> str:
    """What is wrong in the folder of a run, and what to do.

    >>> from pathlib import Path
    >>> fault_words(Fault(FaultKind.NOT_A_FILE, Path("run/metrics.json"), "a link"))
    "'run/metrics.json' is a link, which qunlearn does not write; move it away."
    """
    return FAULTS[fault.kind].format(path=str(fault.path), detail=fault.detail)


def conflict_words(conflict: Conflict) -> str:
    """Where forgetting and retaining were in conflict, and whether that changed."""
    shares = conflict.in_conflict()
    layers = [
        f"{name or 'the whole model'} ({100 * share:.0f} %)"
        for name, share in zip(conflict.layers, shares.tolist(), strict=True)
    ]
    order = shares.argsort(descending=True, stable=True).tolist()
    most = [layers[i] for i in order[:3] if shares[i] > 0]
    sentences = [
        f"Forgetting and retaining pulled apart in {100 * shares.mean().item():.0f} % of the "
        f"sampled steps and layers ({len(conflict.steps)} steps, {len(layers)} layers).",
    ]
    if most and len(layers) > 1:
        sentences.append(f"Most often in {', '.join(most)}; least in {layers[order[-1]]}.")
    if halves := conflict.halves():
        first, second = (100 * half for half in halves)
        change = second - first
        trend = "rose" if change > 5 else "fell" if change < -5 else "stayed about the same"
        sentences.append(
            f"From the first half of the run to the second it {trend} "
            f"({first:.0f} % to {second:.0f} %)."
        )
    sentences.append(
        f"The mean cosine is {conflict.cosine.mean(1).mean():+.2f}; the projection left "
        f"{100 * conflict.kept.mean().item():.0f} % of the forget gradient's length."
    )
    return " ".join(sentences)
