"""What is erased, and what is not reached, in words."""

from __future__ import annotations

from qunlearn.evidence.erased import ErasedRecord, Left
from qunlearn.evidence.plan import Plan
from qunlearn.report.html import counted

WORDS = {
    "backups": "Backups and snapshots of these folders.",
    "exports": "Files that were exported or copied elsewhere, such as ONNX files.",
    "devices": "Networks on devices, until they are replaced.",
    "data": "The data{name}: it still has the samples; erase them with --data.",
    "metadata": "The metadata{name}: it may still have rows of the samples.",
    "embedded": "The data set{name}, which is public and not kept by you.",
    "foreign": "A file that qunlearn did not write{name}.",
    "unreadable": "A run that cannot be read{name}; check it with `qunlearn check`.",
    "list": "The list of what was asked{name}: it may still name the samples.",
    "cache": "The cache of decoded images{name}: delete it if the samples are in it.",
    "outside": "The run before this one{name}: name a folder above both with --within.",
}


def left_words(left: Left, *, named: bool = True) -> str:
    """What is not reached; without names for the record, since files are called after people.

    >>> left_words(Left("list", "anna.txt"))
    'The list of what was asked, anna.txt: it may still name the samples.'
    >>> left_words(Left("list", "anna.txt"), named=False)
    'The list of what was asked: it may still name the samples.'
    """
    name = f", {left.name}" if named and left.name else ""
    return WORDS[left.kind].format(name=name)


def plan_words(plan: Plan, *, resumed: bool = False) -> list[str]:
    """What is to be erased, a line each."""
    head = "Resuming what was begun." if resumed else f"In {plan.within}:"
    lines = [head, f"{counted(len(plan.tokens), 'sample')} to erase."]
    if plan.removed:
        lines += ["Deleted:", *(f"  - {name}" for name in plan.removed)]
    if plan.cleaned:
        lines += ["Cleaned of the samples:", *(f"  - {name}" for name in plan.cleaned)]
    if plan.outdated:
        names = ", ".join(plan.outdated)
        lines.append(f"Certify again: the signed record is about files that change, in {names}.")
    return [*lines, "Not reached:", *(f"  - {left_words(left)}" for left in plan.left)]


def erased_words(done: ErasedRecord) -> str:
    """What was erased, in a sentence."""
    return (
        f"Erased {counted(done.samples, 'sample')} by {done.completed}: "
        f"{counted(len(done.removed), 'item')} deleted, {counted(len(done.cleaned), 'folder')} "
        "cleaned."
    )
