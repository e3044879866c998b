"""All audits within a budget: what is run, what is kept, and what the report shows."""

import json
import shutil
from dataclasses import replace

import pytest
from conftest import made_once

from qunlearn.audit import AuditRow, Work, audits, finding_of, rows_of, table_of
from qunlearn.audit.every import AuditAllConfig
from qunlearn.audit.run import ROW
from qunlearn.errors import UserError
from qunlearn.report.audit_table import printed_audits
from qunlearn.report.record import findings_of
from qunlearn.runs.forget import forget_run
from qunlearn.runs.request import ForgetConfig
from qunlearn.store.run import Run


@pytest.fixture
def run(run_folder, tmp_path_factory, tmp_path):
    """A run that has forgotten, to be changed."""

    def make(folder):
        asked = {"run": run_folder, "random": 0.1, "method": "ft", "epochs": 1, "threads": 1}
        forget_run(ForgetConfig.parse(asked), folder / "ft")

    shutil.copytree(made_once(tmp_path_factory, "audited-all", make) / "ft", tmp_path / "ft")
    return tmp_path / "ft"


def test_what_fits_is_run_and_the_rest_is_listed(qunlearn, run, monkeypatch):
    for name in audits:
        if name not in ("differ", "copies"):
            long = replace(audits[name], work=lambda case, settings: Work(seconds=1e6))
            monkeypatch.setitem(audits._entries, name, long)
    code, out, err = qunlearn("audit", "all", run, "--budget", "10m", "--threads", 1, "--json")
    assert (code, err) == (0, "")
    rows = {row["attack"]: row for row in json.loads(out)["rows"]}
    assert next(iter(rows)) == "relearn"  # what tells most comes first
    assert rows["relearn"]["reason"] == "over budget"
    assert rows["relearn"]["detail"]["seconds"] == pytest.approx(1e6, rel=0.01)
    assert rows["differ"]["verdict"] in ("fail", "cannot be told")  # there is no Retrain
    assert rows["differ"]["seconds"] > 0

    kept = Run.open(run)
    assert {row.attack for row in rows_of(kept)} == {"differ", "copies"}
    assert [row.attack for row in table_of(kept)] == list(rows)
    assert kept.audits["differ"][ROW] == rows["differ"]
    assert finding_of(kept, "copies").samples == 18
    assert {"audit: differ", "audit: copies"} <= {test.name for test in findings_of(kept).tests}

    assert qunlearn("report", run)[0] == 0
    page = (run / "report.html").read_text()
    assert "Attacks that forgetting did not aim at" in page
    assert "not run: takes about 277.8 h, beyond the budget" in page
    assert (run / "figures" / "audit-differ.svg").is_file()


def test_for_a_terminal_reasons_stand_below_a_table_that_is_narrow():
    long = "it told no more of the forgotten samples than a Retrain would." * 3
    rows = [AuditRow("relearn", ("network", "Retrain"), (), "pass", long)]
    table, reason, _ = printed_audits(rows)
    assert max(map(len, table.rows[0])) < 30
    assert reason == f"relearn: pass, {long}"


def test_interrupted_it_keeps_what_was_found(qunlearn, run, monkeypatch):
    def interrupted(case, settings):
        raise KeyboardInterrupt

    for name in audits:
        quick = Work(seconds=0 if name in ("differ", "copies") else 1e6)
        changed = replace(audits[name], work=lambda case, settings, quick=quick: quick)
        monkeypatch.setitem(audits._entries, name, changed)
    stopped = replace(audits["copies"], attack=interrupted)
    monkeypatch.setitem(audits._entries, "copies", stopped)
    code, out, err = qunlearn("audit", "all", run, "--threads", 1)
    assert (code, out) == (1, "")
    assert "Interrupted during copies. Finished audits, kept in audit.json: differ." in err
    assert {row.attack for row in table_of(Run.open(run))} == {"differ"}


@pytest.mark.parametrize("budget", ["soon", "10 days", "-5m", "0"])
def test_a_budget_is_a_time(budget):
    with pytest.raises(UserError, match="budget"):
        AuditAllConfig.parse({"budget": budget})


def test_relearning_is_shown(qunlearn, run):
    code, out, err = qunlearn("audit", "relearn", run, "--steps", 2, "--shown", "0,1")
    assert (code, err) == (0, "")
    assert "Compared with unseen samples alone" in out
    assert "Verdict: " in out
    assert qunlearn("report", run)[0] == 0
    assert (run / "figures" / "audit-relearn.png").is_file()
