"""What audits found, in words and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

from qunlearn.audit.bits import BitsAudit, ChangedCodes, verdict
from qunlearn.audit.pool import PoolAudit
from qunlearn.audit.row import AuditRow, Figure, Finding
from qunlearn.metrics.gap import SCORES
from qunlearn.report.pool import pool_words
from qunlearn.report.tables import TextTable
from qunlearn.report.words import declared_words


@dataclass(frozen=True)
class Details:
    """What one audit found, beside its outcome: sentences and tables."""

    words: Sequence[str] = ()
    tables: Sequence[TextTable] = ()


@singledispatch
def details(finding: Finding) -> Details:
    """What an audit found; each kind of finding registers how it is shown."""
    head = ["figure", "value", "interval", "Retrain"]
    rows = [
        [each.name, value_words(each), interval_words(each), retrain_words(each)]
        for each in finding.row().figures
    ]
    return Details(tables=[TextTable(head, rows)])


def value_words(figure: Figure) -> str:
    """A figure's value with its unit.

    >>> value_words(Figure("AUC", 0.5)), value_words(Figure("FA", 12.0, unit="points"))
    ('0.500', '12.0 points')
    """
    return _number(figure.value, figure.unit)


def interval_words(figure: Figure) -> str:
    """The interval of a figure.

    >>> from qunlearn.metrics.bootstrap import Interval
    >>> interval_words(Figure("AUC", 0.5, Interval(0.45, 0.55)))
    '0.450 to 0.550'
    """
    if figure.interval is None:
        return ""
    ends = (figure.interval.low, figure.interval.high)
    return " to ".join(_number(end, figure.unit).split(" ")[0] for end in ends)


def retrain_words(figure: Figure) -> str:
    """The same figure of a Retrain; empty without one."""
    return _number(figure.retrain, figure.unit)


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    return f"{value:.1f} {unit}" if unit else f"{value:.3f}"


def outcome_words(row: AuditRow) -> str:
    """The verdict of an audit, and its time.

    >>> outcome_words(AuditRow("bits", (), (), "cannot be told", "no Retrain", seconds=2.0))
    'Verdict: cannot be told (no Retrain). 2.0 seconds.'
    """
    reason = f" ({row.reason})" if row.reason else ""
    share = f", {row.share:.1f} % of Retrain's time" if row.share is not None else ""
    return f"Verdict: {row.verdict}{reason}. {row.seconds:.1f} seconds{share}."


@details.register
def pool_details(finding: PoolAudit) -> Details:
    """Each attack with its interval, tolerance and verdict, and what the pool was."""
    head = ["attack", "samples", "value", "interval", "tolerance", "verdict", "networks needed"]
    rows = [
        [
            *(each.attack, each.samples),
            *(value_words(figure), interval_words(figure)),
            *(f"{each.tolerance:g}", each.verdict, f"{each.needed:,}" if each.needed else ""),
        ]
        for each, figure in zip(finding.figures, finding.row().figures, strict=True)
    ]
    return Details(pool_words(finding), [TextTable(head, rows)])


@details.register
def bits_details(finding: BitsAudit) -> Details:
    """The figures at each width, and how many codes forgetting changed."""
    words = [bits_words(finding)]
    if finding.changed is None:
        words.insert(0, "How many codes changed is not known: the run before is not available.")
    if finding.declared is not None:
        words.append(declared_words(finding.declared))
    changed = () if finding.changed is None else (codes_table(finding.changed),)
    return Details(words, (*changed, TextTable(*bits_table(finding))))


def codes_table(changed: ChangedCodes) -> TextTable:
    """The share of integer codes that forgetting changed, layer by layer."""
    rows = [[name or "(whole model)", f"{share:.2f} %"] for name, share in changed.layers.items()]
    rows.append(["all", f"{changed.all:.2f} %"])
    return TextTable(["layer", "codes changed"], rows, "Integer codes that forgetting changed")


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
        """What an audit judged."""
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
    judged = verdict(audit)
    if judged.state == "unusable":
        return "Inconclusive: no other width leaves the network usable."
    if judged.state == "coarse":
        return (
            f"Inconclusive: with {audit.samples} forgotten samples, {judged.chance:.1f} points "
            "may be chance."
        )
    at = "in full precision" if judged.width == "32" else f"at {judged.width} bits"
    beyond = "beyond Retrain" if audit.reference is not None else "beyond new samples"
    if judged.state == "returns":
        return (
            f"Forgetting comes undone: {judged.figure} {at} gives {judged.points:.1f} points of it "
            f"back, {beyond}; {judged.chance:.1f} may be chance."
        )
    most = (
        f"at most {judged.points:.1f} points come back, in {judged.figure} {at}"
        if judged.figure
        else "nothing comes back"
    )
    usable = f"at the {judged.usable} of {len(audit.rows)} widths that leave the network usable"
    rest = f"{most}, {beyond} ({judged.chance:.1f} may be chance), {usable}."
    if judged.state == "alone":
        return f"Other bits bring nothing back; whether it had forgotten takes a Retrain: {rest}"
    if judged.state == "before":
        above = f"FA {judged.ahead:.1f} points above Retrain's"
        return f"It had not forgotten in the first place, {above}: {rest}"
    return f"It stays forgotten: {rest}"
