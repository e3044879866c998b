"""What audits found, as sections of a run's page."""

from __future__ import annotations

from dataclasses import dataclass

from qunlearn.audit.bits import BitsAudit, ChangedCodes, verdict
from qunlearn.metrics.gap import SCORES
from qunlearn.report.words import declared_words


@dataclass(frozen=True)
class BitsFindings:
    """The audit of the bits as a page shows it: in words, and as a table."""

    words: str
    declared: str
    head: list[str]
    rows: list[list[str]]
    changed: ChangedCodes | None

    @classmethod
    def of(cls, audit: BitsAudit) -> BitsFindings:
        """What an audit found."""
        declared = declared_words(audit.declared) if audit.declared else ""
        return cls(bits_words(audit), declared, *bits_table(audit), audit.changed)


def bits_table(audit: BitsAudit) -> tuple[list[str], list[list[str]]]:
    """The four figures at each width, beside Retrain's: the head, and the rows."""
    head = ["bits of the weights", *SCORES]
    rows = [
        [width_name(width), *(f"{value:.2f}" for value in scores.figures.values())]
        for width, scores in {"as trained": audit.trained, **audit.rows}.items()
    ]
    if audit.reference is not None:
        head += ["AG", "Retrain's FA", "Retrain's MIA"]
        theirs = (audit.reference.trained, *audit.reference.rows.values())
        for row, gap, other in zip(rows, audit.gaps.values(), theirs, strict=True):
            row += [f"{value:.2f}" for value in (gap, other.FA, other.MIA)]
    return head, rows


def width_name(width: str) -> str:
    """What people call a width.

    >>> width_name("4"), width_name("32")
    ('4', 'full precision')
    """
    return "full precision" if width == "32" else width


def bits_words(audit: BitsAudit) -> str:
    """Whether what was forgotten comes back at other bits, in a sentence."""
    found = verdict(audit)
    if found.state == "unusable":
        return "Inconclusive: no other width leaves the network usable."
    if found.state == "coarse":
        return (
            f"Inconclusive: with {audit.samples} forgotten samples, {found.chance:.1f} points "
            "may be chance."
        )
    at = "in full precision" if found.width == "32" else f"at {found.width} bits"
    beyond = "beyond Retrain" if audit.reference is not None else "beyond new samples"
    if found.state == "returns":
        return (
            f"Forgetting comes undone: {found.figure} {at} gives {found.points:.1f} points of it "
            f"back, {beyond}; {found.chance:.1f} may be chance."
        )
    most = (
        f"at most {found.points:.1f} points come back, in {found.figure} {at}"
        if found.figure
        else "nothing comes back"
    )
    usable = f"at the {found.usable} of {len(audit.rows)} widths that leave the network usable"
    rest = f"{most}, {beyond} ({found.chance:.1f} may be chance), {usable}."
    if found.state == "alone":
        return f"Other bits bring nothing back; whether it had forgotten takes a Retrain: {rest}"
    if found.state == "before":
        above = f"FA {found.ahead:.1f} points above Retrain's"
        return f"It had not forgotten in the first place, {above}: {rest}"
    return f"It stays forgotten: {rest}"
