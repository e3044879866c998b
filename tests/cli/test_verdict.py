"""One verdict: commands, page and Python say the same, and the exit code follows."""

import html
import json
import re

import pytest
from sealed import seal

import qunlearn as qu
from qunlearn.report.judge import verdict_of
from qunlearn.runs.data import split_of
from qunlearn.runs.metrics import metrics_of
from qunlearn.store.run import Run

FAST = ("--random", 0.3, "--epochs", 1, "--threads", 1)


def text_of(run):
    """A run's page, its spaces made plain."""
    page = (run / "report.html").read_text()
    return html.unescape(page).replace("\N{NO-BREAK SPACE}", " ")


@pytest.fixture
def judged(monkeypatch):
    """Has the next targets end in a state of choice."""
    return lambda state: monkeypatch.setattr(
        "qunlearn.methods.calibration.state_of", lambda *figures: state
    )


@pytest.mark.parametrize("state", ["short", "too far"])
def test_a_target_that_is_missed_is_exit_code_3_and_accepted_if_asked(
    qunlearn, run_folder, tmp_path, judged, state
):
    judged(state)
    out = tmp_path / "out"
    code, said, _ = qunlearn("forget", run_folder, *FAST, "--out", out)
    assert code == 3
    assert {"short": "Target not reached", "too far": "Target overshot"}[state] in said
    assert "; allow more steps." in said or re.search(r"; try --set lr=0\.\d+\.", said)
    assert qunlearn("check", out)[0] == 0  # all was written
    assert qunlearn("forget", "--resume", "--out", out)[0] == 3
    assert qunlearn("forget", "--resume", "--accept", "--out", out)[0] == 0
    code, said, _ = qunlearn("forget", "--resume", "--json", "--out", out)
    assert (code, json.loads(said)["verdict"]["met"]) == (3, False)
    assert qunlearn("evaluate", out)[0] == qunlearn("report", out)[0] == 0


@pytest.mark.parametrize("state", ["reached", "little", "open"])
def test_any_other_end_is_exit_code_0(qunlearn, run_folder, tmp_path, judged, state):
    judged(state)
    assert qunlearn("forget", run_folder, *FAST, "--out", tmp_path / "out")[0] == 0


def test_a_comparison_does_not_mind(qunlearn, run_folder, tmp_path, judged):
    judged("too far")
    words = ("--methods", "calibrated[epochs=1]", "--set", "retrain.epochs=1", "--seeds", 1)
    code, _, said = qunlearn(
        "compare", run_folder, "--random", 0.1, *words, "--threads", 1, "--out", tmp_path / "table"
    )
    assert (code, said) == (0, "")


def test_the_help_and_the_docs_name_the_exit_code(qunlearn):
    said = qunlearn("forget", "--help")[1]
    assert "--accept" in said
    assert "Exit code 3" in said


@pytest.mark.parametrize("asked", [("--random", 0.3), ("--class", 3)])
def test_the_command_line_the_page_and_python_say_the_same(qunlearn, run_folder, tmp_path, asked):
    runs = {name: tmp_path / name for name in ("new", "retrain")}
    words = ("forget", run_folder, *asked, "--threads", 1, "--accept", "--epochs", 1)
    printed = qunlearn(*words, "--out", runs["new"])[1]
    assert qunlearn(*words, "--method", "retrain", "--out", runs["retrain"])[0] == 0
    run = Run.open(runs["new"])
    verdict = verdict_of(metrics_of(run))
    qunlearn("report", runs["new"])
    page = text_of(runs["new"])
    for said in (verdict.headline, *verdict.reasons):
        assert said in printed
        assert said in qunlearn("evaluate", runs["new"])[1]
        assert said in page
    split = split_of(run)
    result = qu.forget(qu.load(run_folder), split, epochs=1)
    assert str(result.verdict) == f"{verdict.answer} {' '.join(verdict.reasons)}"

    beside = ("--reference", runs["retrain"])
    found = json.loads(qunlearn("evaluate", runs["new"], *beside, "--json")[1])["verdict"]
    qunlearn("report", runs["new"], *beside)
    page = text_of(runs["new"])
    assert found["headline"] in page
    assert all(reason in page for reason in found["reasons"])


def test_figures_of_somebody_else_get_a_sentence(qunlearn, run_folder, tmp_path):
    out = tmp_path / "out"
    qunlearn("forget", run_folder, *FAST, "--accept", "--out", out)
    figures = json.loads((out / "metrics.json").read_text())
    figures["calibration"] = {"aimed": "much"}
    (out / "metrics.json").write_text(json.dumps(figures))
    seal(out)
    for words in (("evaluate", out), ("forget", "--resume", "--out", out), ("report", out)):
        code, _, said = qunlearn(*words)
        assert (code, "is invalid" in said) == (2, True)
