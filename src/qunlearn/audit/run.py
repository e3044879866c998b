"""Run one audit on a run folder, and keep what it found there."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from qunlearn.audit.case import Case, case_of
from qunlearn.audit.config import AuditConfig
from qunlearn.audit.registry import audits
from qunlearn.audit.row import AuditRow, Finding
from qunlearn.store.layout import AUDIT
from qunlearn.store.run import Run
from qunlearn.store.typed import Json, typed, untyped

ROW = "row"
"""Where the outcome stands among an audit's findings in `audit.json`."""


@dataclass(frozen=True)
class Result:
    """What an audit found, and its outcome with the time that it took."""

    finding: Finding
    row: AuditRow

    def to_json(self) -> Json:
        """As it stands in `audit.json`."""
        to_json = getattr(self.finding, "to_json", None)
        content: Json = to_json() if to_json is not None else untyped(self.finding)
        return {**content, ROW: untyped(self.row)}


def audit_run(name: str, path: Path, settings: AuditConfig) -> Result:
    """Audit a run that has forgotten; keeps what is found in its `audit.json`."""
    case = case_of(path, settings)
    result = audited(name, case, settings)
    if case.run is not None:
        case.run.write_audit(name, result.to_json())
    return result


def audited(name: str, case: Case, settings: AuditConfig) -> Result:
    """Run an audit; nothing is written."""
    started = time.perf_counter()
    finding: Finding = audits[name].attack(case, settings)
    seconds = round(time.perf_counter() - started, 3)
    row = replace(finding.row(), seconds=seconds, retrain_seconds=case.retrain_seconds)
    return Result(finding, row)


def finding_of(run: Run, name: str) -> Finding | None:
    """What an audit found, from a run's folder; None if it was not run."""
    content = run.audits.get(name)
    if content is None:
        return None
    kind = audits[name].finding
    modernised = getattr(kind, "modernised", None)  # earlier versions may have written it otherwise
    content = content if modernised is None else modernised(content, run)
    finding: Finding = typed(kind, content, run.path / AUDIT)
    return finding


def rows_of(run: Run) -> tuple[AuditRow, ...]:
    """The outcome of each audit of a run, in order of what tells most; empty if there was none.

    Audits that are not registered here, such as a plug-in's, come last, if they wrote an outcome.
    """
    content = run.audits
    names = sorted((name for name in content if name in audits), key=lambda n: audits[n].rank)
    names += [
        name
        for name, findings in content.items()
        if name not in audits and isinstance(findings, dict) and ROW in findings
    ]
    return tuple(_row(run, name, content[name]) for name in names)


def _row(run: Run, name: str, content: object) -> AuditRow:
    if isinstance(content, dict) and ROW in content:
        return typed(AuditRow, content[ROW], run.path / AUDIT)
    finding = finding_of(run, name)  # from before rows were written
    assert finding is not None
    return finding.row()
