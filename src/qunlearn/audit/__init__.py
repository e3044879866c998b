"""Looking further for what a network still remembers: a file for each audit."""

# Each registers itself.
from qunlearn.audit import bits as bits
from qunlearn.audit import copies as copies
from qunlearn.audit import differ as differ
from qunlearn.audit import pool as pool
from qunlearn.audit import relearn as relearn
from qunlearn.audit.case import Case, case_of
from qunlearn.audit.every import AllAudits, AuditAllConfig, audit_all, table_of
from qunlearn.audit.registry import Audit, Work, audits
from qunlearn.audit.row import LEVEL, AuditRow, Figure, Finding, NotApplicable, Verdict
from qunlearn.audit.run import Result, audit_run, audited, finding_of, rows_of

__all__ = [
    "LEVEL",
    "AllAudits",
    "Audit",
    "AuditAllConfig",
    "AuditRow",
    "Case",
    "Figure",
    "Finding",
    "NotApplicable",
    "Result",
    "Verdict",
    "Work",
    "audit_all",
    "audit_run",
    "audited",
    "audits",
    "case_of",
    "finding_of",
    "rows_of",
    "table_of",
]
