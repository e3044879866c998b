"""The table of all audits, and what each attack showed, in words and tables."""

from __future__ import annotations

from collections.abc import Sequence

from qunlearn.audit import AuditRow
from qunlearn.audit.copies import CopiesAudit
from qunlearn.audit.differ import DifferAudit, Separation
from qunlearn.audit.relearn import RelearnAudit, Relearned
from qunlearn.report.audits import (
    Details,
    codes_table,
    details,
    interval_words,
    reason_words,
    retrain_words,
    value_words,
)
from qunlearn.report.tables import TextTable

NO_SUM = (
    "No single figure stands for all: each attack sees something else, and a pass says that this "
    "attack told no more than a Retrain would."
)


HEAD = ["attack", "verdict", "why", "result", "interval", "Retrain", "needs", "time"]
"""The verdict first, since a page may cut off what is on the right."""


def audits_table(rows: Sequence[AuditRow]) -> TextTable:
    """One line for each audit."""
    return TextTable(HEAD, [_line(row) for row in rows])


def printed_audits(rows: Sequence[AuditRow]) -> list[str | TextTable]:
    """The same for a terminal, which is narrow: why is said below the table."""
    why = HEAD.index("why")
    lines = [[cell for i, cell in enumerate(_line(row)) if i != why] for row in rows]
    table = TextTable([name for name in HEAD if name != "why"], lines)
    explained = [row for row in rows if row.reason]
    words = {row.attack: reason_words(row).rstrip(".") for row in explained}
    reasons = [f"{row.attack}: {row.verdict}, {words[row.attack]}." for row in explained]
    return [table, *reasons, NO_SUM]


def _line(row: AuditRow) -> list[str]:
    first = row.figures[0] if row.figures else None
    result = "" if first is None else f"{first.name}: {value_words(first)}"
    cells = ["", ""] if first is None else [interval_words(first), retrain_words(first)]
    share = "" if row.share is None else f" ({row.share:.0f} % of Retrain)"
    took = f"{row.seconds:.1f} s{share}" if row.seconds else ""
    return [row.attack, row.verdict, reason_words(row), result, *cells, ", ".join(row.needs), took]


@details.register
def relearn_details(finding: RelearnAudit) -> Details:
    """Each curve's start and end, and how soon half was back."""
    head = ["shown per class", "forgotten", "unseen", "Retrain, forgotten", "comes back", "half"]
    rows = [_relearned(curve, finding.forgotten) for curve in finding.curves]
    title = "Confidence in the true label, in percent, before and after fine-tuning"
    return Details([relearn_words(finding)], [TextTable(head, rows, title)])


def _relearned(curve: Relearned, forgotten: float | None) -> list[str]:
    first, last = curve.points[0], curve.points[-1]
    theirs = (
        f"{curve.retrain[0].confidence:.1f} → {curve.retrain[-1].confidence:.1f}"
        if curve.retrain
        else ""
    )
    half = "unknown" if forgotten is None else "no"
    return [
        str(curve.shown),
        f"{first.confidence:.1f} → {last.confidence:.1f}",
        f"{first.unseen_confidence:.1f} → {last.unseen_confidence:.1f}",
        theirs,
        f"{curve.excess:.1f} ({curve.interval.low:.1f} to {curve.interval.high:.1f})",
        half if curve.half is None else f"{curve.half} steps",
    ]


def relearn_words(finding: RelearnAudit) -> str:
    """What the forgotten samples are compared with, and what that leaves open."""
    compared = {
        "Retrain": "Compared with a Retrain that was fine-tuned the same, sample by sample.",
        "unseen samples": "Compared with unseen samples alone, which a random request makes a fair "
        "control. What a Retrain would gain by forgotten samples shown is not measured.",
        "class-wise": "Without a Retrain: it would have no confidence in a class that it never "
        "saw. Whether it would relearn as fast from a few samples cannot be told.",
        "rise": "Without a Retrain, and these samples are not drawn at random: only a rise beyond "
        "unseen samples is telling. Whether they were forgotten at all cannot be told.",
    }[finding.control]
    took = (
        "" if finding.forgotten is None else f" Forgetting took off {finding.forgotten:.1f} points."
    )
    return f"{compared}{took}"


@details.register
def differ_details(finding: DifferAudit) -> Details:
    """Each score against unseen and retained samples, and the codes that changed."""
    compared = any(each.retrain is not None for each in finding.separations)
    rates = ["TPR at 1 %", "at 0.1 %"]
    head = ["score", "against", "AUC", "interval", *rates]
    head += ["Retrain's AUC", "difference", *(f"Retrain's {rate}" for rate in rates)] * compared
    title = "How well each score separates forgotten samples from others"
    tables = [TextTable(head, [_separation(each) for each in finding.separations], title)]
    if finding.changed is not None:
        tables.append(codes_table(finding.changed))
    return Details(differ_words(finding), tables)


def _separation(each: Separation) -> list[str]:
    cells = [each.score, each.against, f"{each.auc:.3f}"]
    cells += [f"{each.interval.low:.3f} to {each.interval.high:.3f}", *map(_rate, each.tpr)]
    if each.retrain is not None and each.beyond is not None:
        cells += [f"{each.retrain:.3f}", f"{each.beyond.low:+.3f} to {each.beyond.high:+.3f}"]
        cells += map(_rate, each.retrain_tpr)
    return cells


def _rate(value: float | None) -> str:
    return "too few" if value is None else f"{100 * value:.1f} %"


def differ_words(finding: DifferAudit) -> list[str]:
    """How many samples there were, what that leaves open, and the retrain-free divergence."""
    compared = any(each.retrain is not None for each in finding.separations)
    counts = {name: f"{count:,}" for name, count in finding.samples.items()}
    words = [
        f"{counts['forgotten']} forgotten samples against {counts['unseen']} unseen and "
        f"{counts['retained']} retained ones."
    ]
    if finding.shadow is not None:
        words.append(
            f"The shadow classifier learned from a shadow network that forgot {finding.shadow:,} "
            "random samples by the same method"
            + ("; for Retrain, from one that was retrained." if compared else ".")
        )
    too_few = [name for name in ("unseen", "retained") if finding.samples[name] < 1000]
    if too_few:
        words.append(
            "TPR at 0.1 % FPR needs 1,000 negatives; there are fewer "
            f"{' and '.join(too_few)} samples."
        )
    if not compared:
        words.append(
            "A Retrain differs from the network before as well, and most on the forgotten samples. "
            "Without one it cannot be told how much of this separation is too much."
        )
    if finding.divergence is not None and finding.divergence_before is not None:
        words.append(
            f"Retrain-free divergence (RF-JSD): {finding.divergence:.4f} nats, before forgetting "
            f"{finding.divergence_before:.4f}."
        )
    return words


@details.register
def copies_details(finding: CopiesAudit) -> Details:
    """What was flagged, and the pairs."""
    rate = 100 * finding.false_alarms
    words = [
        f"{way.flagged} of {finding.samples:,} forgotten samples are flagged by {way.by}; false "
        f"alarms at {rate:g} % give {finding.false_alarms * finding.samples:.1f}."
        for way in finding.ways
    ]
    rows = [
        [pair.forgotten, pair.retained, pair.by, f"{pair.distance:.3g}"] for pair in finding.copies
    ]
    head = ["forgotten", "retained", "by", "distance"]
    title = "Samples that are alike"
    return Details(words, [TextTable(head, rows, title)] if rows else [])
