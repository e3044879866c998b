"""What audits found, in words and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch

from qunlearn.audit.bits import BitsAudit, ChangedCodes, verdict
from qunlearn.audit.pool import PoolAudit
from qunlearn.audit.row import AuditRow, Detail, Figure, Finding
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


def _pool_figure(detail: Detail) -> str:
    value = detail.get("value")
    shown = f"{value:.3f}" if isinstance(value, float) else "none"
    return f"{detail['attack']}, {detail['samples']}: {shown}, tolerance {detail['tolerance']:g}"


def _few_networks(detail: Detail) -> str:
    words = f"{detail['models']} networks are too few for {detail['attack']}, {detail['samples']}"
    return f"{words}; {detail['needed']:,} networks would do" if "needed" in detail else words


def _against(what: str) -> Callable[[Detail], str]:
    return lambda detail: f"{detail['score']} {what} than Retrain's, against {detail['against']}"


REASONS: Mapping[str, Callable[[Detail], str]] = {
    "over budget": lambda d: f"not run: takes about {duration(d['seconds'])}, beyond the budget",
    "not applicable": lambda d: f"not run: {d['message']}",
    "exact copies": lambda d: f"{d['samples']} forgotten samples are retained under another id",
    "near-duplicates": lambda d: (
        f"{d['samples']} forgotten samples have a near-duplicate by {d['by']}"
    ),
    "false alarms": lambda d: f"up to {d['samples']} flagged, as many as false alarms give",
    "separates more": _against("tells more"),
    "changed less": _against("changed less"),
    "unchanged": lambda d: "memorised samples changed no more than unseen ones",
    "not forgotten": lambda d: "not forgotten with the trained bits",
    "no usable width": lambda d: "no other width leaves the network usable",
    "comes back": lambda d: f"comes back with {_and(d['shown'])} per class shown",
    "nothing comes back, no Retrain": lambda d: (
        "nothing comes back, but without a Retrain it is not known whether it was forgotten"
    ),
    "retained samples alone": lambda d: (
        "nothing comes back by retained samples alone; with forgotten ones shown it takes a Retrain"
    ),
    "deciding figure": _pool_figure,
    "too few networks": _few_networks,
}
"""What decided a verdict, in words. Other reasons, such as "no Retrain", are words already."""


def reason_words(row: AuditRow) -> str:
    """What decided the verdict of an audit; empty if nothing has to be said.

    Reasons of plug-ins, and those that earlier versions wrote, are shown as they are.

    >>> row = AuditRow("relearn", (), (), "fail", "comes back", detail={"shown": ("1", "10")})
    >>> reason_words(row)
    'comes back with 1 and 10 per class shown'
    """
    words = REASONS.get(row.reason)
    try:
        return row.reason if words is None else words(row.detail)
    except (LookupError, TypeError, ValueError):  # the file was edited
        return row.reason


def duration(seconds: object) -> str:
    """A duration in the unit that suits it.

    >>> duration(42), duration(300), duration(9000)
    ('42 s', '5 min', '2.5 h')
    """
    if not isinstance(seconds, int | float):
        raise TypeError("a duration is a number")
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _and(names: object) -> str:
    return " and ".join(names) if isinstance(names, tuple) else str(names)


def outcome_words(row: AuditRow) -> str:
    """The verdict of an audit, and its time.

    >>> outcome_words(AuditRow("bits", (), (), "cannot be told", "no Retrain", seconds=2.0))
    'Verdict: cannot be told (no Retrain). 2.0 seconds.'
    """
    reason = f" ({reason_words(row)})" if row.reason else ""
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
