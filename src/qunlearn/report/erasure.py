"""What is erased, and what is not reached, in words."""

from __future__ import annotations

from qunlearn.evidence.erased import ErasedRecord, Left
from qunlearn.evidence.plan import Plan
from qunlearn.report.html import counted

WORDS = {
    "backups": "Backups and snapshots of these folders.",
    "exports": "Files that were exported or copied elsewhere, such as ONNX files.",
    "devices": "Networks on devices, until they are replaced.",
    "data": "The data, {name}: it still has the samples; erase them with --data.",
    "metadata": "The metadata, {name}: it may still have rows of the samples.",
    "embedded": "The data set {name}, which is public and not kept by you.",
    "foreign": "{name}, which qunlearn did not write.",
    "unreadable": "The run {name}, which cannot be read; check it with `qunlearn check`.",
    "list": "The list of what was asked, {name}: it may still name the samples.",
    "outside": "{name}, which is outside of the folder; name a folder above it with --within.",
}


def left_words(left: Left) -> str:
    """What is not reached.

    >>> left_words(Left("foreign", "runs/a/notes.txt"))
    'runs/a/notes.txt, which qunlearn did not write.'
    """
    return WORDS[left.kind].format(name=left.name)


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
