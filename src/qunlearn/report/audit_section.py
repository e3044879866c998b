"""The section of a run's page about its audits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qunlearn.audit import audits, finding_of, table_of
from qunlearn.report.audit_figures import picture
from qunlearn.report.audit_table import NO_SUM, audits_table
from qunlearn.report.audits import Details, details
from qunlearn.report.drawing import Drawn
from qunlearn.report.tables import TextTable
from qunlearn.store.run import Run


@dataclass(frozen=True)
class AuditPart:
    """What one audit found, as the page shows it."""

    name: str
    summary: str
    shown: Details
    drawn: Drawn | None


@dataclass(frozen=True)
class AuditSection:
    """The table of all audits of a run, and a part for each that was run."""

    table: TextTable
    note: str
    parts: Sequence[AuditPart]

    @property
    def drawn(self) -> list[Drawn]:
        """The figures of all parts."""
        return [part.drawn for part in self.parts if part.drawn is not None]


SHOWN_ELSEWHERE = "bits"
"""The audit that the page has a section for already."""


def audit_section(run: Run) -> AuditSection | None:
    """The section of a run; None if it was not audited."""
    rows = table_of(run)
    if not rows:
        return None
    parts = []
    for row in rows:
        finding = finding_of(run, row.attack)
        if finding is None or row.attack == SHOWN_ELSEWHERE:
            continue
        summary = audits[row.attack].summary
        parts.append(AuditPart(row.attack, summary, details(finding), picture(finding)))
    return AuditSection(audits_table(rows), NO_SUM, parts)
