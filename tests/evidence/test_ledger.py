"""The ledger: every request with its dates and its state."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from datetime import UTC, date, datetime, timedelta

import pytest

from qunlearn.evidence.ledger import Entry, Judged, ledger, month_after
from qunlearn.report.ledger import write_ledger
from qunlearn.runs.provenance import lines_of
from qunlearn.store.run import Run


def days_ago(number: int) -> str:
    return (datetime.now(UTC).date() - timedelta(days=number)).isoformat()


@pytest.fixture(scope="module")
def story(run_folder, tmp_path_factory):
    """Two people's requests in one go, and then a third's."""
    from qunlearn.runs.data import split_of
    from qunlearn.runs.forget import forget_run
    from qunlearn.runs.request import ForgetConfig

    folder = tmp_path_factory.mktemp("ledger")
    runs = folder / "runs"
    shutil.copytree(run_folder, runs / "original")
    split = split_of(Run.open(runs / "original"))
    ids = [split.data.ids[row] for row in split.train.tolist()]
    rows = [f"{ids[0]},,{days_ago(40)},anna", f"{ids[1]},,{days_ago(40)},anna"]
    rows += [f",id0 == 1,{days_ago(3)},ben"]
    (folder / "requests.csv").write_text("id,rule,received,reference\n" + "\n".join(rows))
    people = [f"{name},{int(name in ids[5:9])}" for name in split.data.ids]
    (folder / "people.csv").write_text("id,id0\n" + "\n".join(people))
    both = {
        "run": runs / "original",
        "requests": folder / "requests.csv",
        "metadata": folder / "people.csv",
        "method": "ga",
        "threads": 1,
    }
    forget_run(ForgetConfig.parse(both), runs / "both")
    third = {"run": runs / "both", "random": 0.05, "method": "ga", "threads": 1}
    third |= {"received": days_ago(1), "reference": "carla"}
    forget_run(ForgetConfig.parse(third), runs / "third")
    return folder


def test_every_request_has_its_own_line(qunlearn, story, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # keys are destroyed below
    runs = story / "runs"
    assert [(line.reference, line.samples) for line in lines_of(Run.open(runs / "both"))] == [
        ("anna", 2),
        ("ben", 4),
    ]
    shutil.copytree(runs, tmp_path / "runs")
    code, out, err = qunlearn("ledger", tmp_path / "runs", "--json")
    assert code == 1  # something is overdue
    assert "Overdue: anna" in err
    entries = {each["reference"]: each for each in json.loads(out)["requests"]}
    assert list(entries) == ["anna", "ben", "carla"]
    assert entries["anna"]["overdue"]
    assert entries["anna"]["due"] == month_after(date.fromisoformat(days_ago(40))).isoformat()
    assert not entries["ben"]["overdue"]
    assert {each["state"] for each in entries.values()} == {"forgotten"}
    assert not (tmp_path / "runs" / "ledger.html").exists()
    assert qunlearn("ledger", tmp_path / "runs", "--days", 60)[0] == 0
    assert (tmp_path / "runs" / "ledger.html").exists()

    code, _, err = qunlearn("erase", tmp_path / "runs" / "third", "--yes")
    assert code == 0, err
    assert qunlearn("keys", "new", tmp_path / "o.pem")[0] == 0
    code, _, err = qunlearn("certify", tmp_path / "runs" / "third", "--key", tmp_path / "o.pem")
    assert code == 0, err
    code, out, _ = qunlearn("ledger", tmp_path / "runs", "--json")
    entries = {each["reference"]: each["state"] for each in json.loads(out)["requests"]}
    # The runs of the first two are gone, since they knew the third's samples; their lines are not.
    assert entries == {"anna": "erased", "ben": "erased", "carla": "certified"}
    assert code == 0
    record = tmp_path / "runs" / "third" / "forgetting.intoto.json"
    code, out, _ = qunlearn("verify", record, "--json")
    assert code == 0
    lines = json.loads(out)["statement"]["predicate"]["request"]["lines"]
    assert lines == [
        {"samples": lines[0]["samples"], "reference": "carla", "received": days_ago(1)}
    ]


def test_unfinished_and_resurfaced_requests_are_told(story, tmp_path):
    shutil.copytree(story / "runs", tmp_path / "runs")
    (tmp_path / "runs" / "third" / "run.json").unlink()
    today = datetime.now(UTC).date()
    states = {e.reference: e.state for e in ledger(tmp_path / "runs", today, lambda run: Judged())}
    assert states == {"anna": "forgotten", "ben": "forgotten", "carla": "open"}

    def back(run):
        return Judged(resurfaced=[1] if run.path.name == "third" else [])

    later = {e.reference: e.state for e in ledger(story / "runs", today, back)}
    assert later == {"anna": "resurfaced", "ben": "resurfaced", "carla": "forgotten"}
    (tmp_path / "runs" / "both" / "split.json").write_text("{}")
    states = {e.reference: e for e in ledger(tmp_path / "runs", today, lambda run: Judged())}
    assert {states["anna"].state, states["ben"].state} == {"unreadable"}
    assert states["anna"].overdue  # damage does not make it any younger


def test_what_has_no_date_on_record_is_as_old_as_its_files(story, tmp_path):
    shutil.copytree(story / "runs" / "third", tmp_path / "runs" / "third")
    config = tmp_path / "runs" / "third" / "config.toml"
    (config.parent / "run.json").unlink()
    settings = re.sub(r"lines = \[.*?\n\]\n", "", config.read_text(), flags=re.DOTALL)
    assert "carla" in config.read_text()
    config.write_text(settings)
    today = datetime.now(UTC).date()
    old = datetime.now(UTC).timestamp() - 50 * 86400

    def entry():
        (only,) = ledger(tmp_path / "runs", today, lambda run: Judged())
        return only.state, only.overdue, only.received

    assert entry() == ("open", False, today.isoformat())
    os.utime(config, (old, old))
    assert entry() == ("open", True, days_ago(50))
    config.write_text("damaged = [")
    os.utime(config, (old, old))
    assert entry() == ("unreadable", True, days_ago(50))


def test_runs_for_the_same_samples_are_one_request_under_its_own_name(
    qunlearn, story, tmp_path, monkeypatch
):
    """The first of them in the alphabet need not be the one that the officer named."""
    from qunlearn.runs.forget import forget_run
    from qunlearn.runs.request import ForgetConfig

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # keys are destroyed below
    runs, today = tmp_path / "runs", datetime.now(UTC).date()
    shutil.copytree(story / "runs", runs)
    ids = json.loads((runs / "both" / "split.json").read_text())["requests"][0]["ids"]
    (tmp_path / "ids.txt").write_text("\n".join(ids))
    again = {"run": runs / "original", "ids": tmp_path / "ids.txt", "method": "ga", "threads": 1}
    forget_run(ForgetConfig.parse(again), runs / "another")

    def states(judge):
        return {each.reference: each.state for each in ledger(runs, today, judge)}

    told = {"anna": "forgotten", "ben": "forgotten", "carla": "forgotten"}
    assert states(lambda run: Judged()) == told
    code, _, err = qunlearn("erase", runs / "third", "--yes")
    assert code == 0, err
    assert not (runs / "both" / "split.json").exists()
    told = dict.fromkeys(told, "erased")
    assert states(lambda run: Judged()) == told  # from papers alone, and none of them twice
    assert states(lambda run: Judged(resurfaced=[1])) == {
        "anna": "resurfaced",
        "ben": "resurfaced",
        "carla": "erased",
    }


def test_a_missed_target_is_no_answer_and_becomes_overdue(story):
    day = datetime.now(UTC).date()
    entries = ledger(story / "runs", day, lambda run: Judged(missed=True))
    states = {e.reference: (e.state, e.overdue) for e in entries}
    assert states["anna"] == ("missed", True)


def test_only_a_record_of_this_network_after_erasing_closes_a_request(
    qunlearn, forgotten, run_folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # keys are destroyed below
    runs = tmp_path / "runs"
    for run in (forgotten, run_folder):
        shutil.copytree(run, runs / run.name)

    def state():
        (entry,) = ledger(runs, datetime.now(UTC).date(), lambda run: Judged())
        return entry.state

    assert qunlearn("keys", "new", tmp_path / "o.pem")[0] == 0
    sign = ("certify", runs / "forgotten", "--key", tmp_path / "o.pem")
    assert qunlearn(*sign)[0] == 0
    assert state() == "forgotten"  # the record says that nothing is erased
    assert qunlearn("erase", runs / "forgotten", "--yes")[0] == 0
    assert state() == "erased"  # the record is about the files before
    assert qunlearn(*sign)[0] == 0
    assert state() == "certified"


def test_wrong_requests_are_refused_in_a_sentence(qunlearn, story, tmp_path):
    origin = story / "runs" / "original"
    for text, told in (
        ("name\nx\n", "no column 'id' or 'rule'"),
        ("id,received\n", "lists no requests"),
        ("id,rule\ntrain/1,user == 1\n", "an id or a rule, and not both"),
        ("id,received\ntrain/1,yesterday\n", "In row 2 of "),
        ("id,received\ntrain/1,2026-02-31\n", "received = '2026-02-31' is not a date"),
        ("id,reference,reference\ntrain/1,a,b\n", "has the column 'reference' twice"),
        ("rule\nuser = 'anna@example.org'\n", "equality is written =="),
        ("id,received\ntrain/1,2999-01-01\n", "is in the future"),
        ("id\ntrain/none\n", "'train/none'"),
        ('id,reference\ntrain/1,"a\nb"\n', r"reference = 'a\nb' is not a reference"),
    ):
        (tmp_path / "r.csv").write_text(text)
        words = ("--requests", tmp_path / "r.csv", "--method", "ga", "--out", tmp_path / "n")
        code, _, err = qunlearn("forget", origin, *words)
        assert code == 2, text
        assert told in err
        assert "anna@" not in err  # logs keep what is printed
    words = ("--random", 0.1, "--received", "18.11.2026", "--out", tmp_path / "n")
    code, _, err = qunlearn("forget", origin, *words)
    assert code == 2
    assert "'18.11.2026' is not a date; write it as 2026-11-18" in err
    for reference in ("", " ", "two\nlines", "\x1b[31mred", "x" * 101):
        words = ("--random", 0.1, "--reference", reference, "--out", tmp_path / "n")
        code, _, err = qunlearn("forget", origin, *words)
        assert code == 2, reference
        assert "is not a reference; write one line" in err
        assert "\x1b" not in err
    words = ("--random", 0.1, "--requests", tmp_path / "r.csv", "--out", tmp_path / "n")
    code, _, err = qunlearn("forget", origin, *words)
    assert code == 2
    assert "leave --random out" in err
    assert not (tmp_path / "n").exists()
    assert qunlearn("ledger", tmp_path / "none")[0] == 2


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs Chromium")
def test_the_page_sorts_in_chromium(tmp_path):
    def entry(reference, received, samples):
        return Entry(reference, received, received, "open", False, samples, f"runs/{reference}")

    entries = [entry("anna", "2026-10-02", 1200), entry("ben", "2026-09-30", 30)]
    entries += [entry("carla", "2026-11-01", 200)]
    page = write_ledger(tmp_path, entries, date(2026, 11, 18))
    unlocked = re.sub(r'<meta http-equiv="Content-Security-Policy".*?>', "", page.read_text())

    def order(address: str) -> list[str]:
        words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        words += ["--disable-background-networking", f"--user-data-dir={tmp_path / 'profile'}"]
        done = subprocess.run(
            [*words, "--dump-dom", address], capture_output=True, text=True, check=True
        )
        return sorted(("anna", "ben", "carla"), key=lambda name: done.stdout.index(f">{name}<"))

    assert order(f"{page.as_uri()}#4") == ["ben", "carla", "anna"]  # 1,200 is more than 200
    click = "document.querySelectorAll('thead button')[1].click();"
    (tmp_path / "clicked.html").write_text(f"{unlocked}<script>{click * 2}</script>")
    assert order((tmp_path / "clicked.html").as_uri()) == ["carla", "anna", "ben"]  # descending
    assert page.read_text().count("<script") == 1
