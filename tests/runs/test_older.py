"""Run folders that earlier versions wrote are opened, measured, forgotten from, and say their age.

Each folder of tests/assets/older/ was made by the commit that it is named after, with two commands:
`train --dataset digits --subset 100 --model cnn --width 0.125 --epochs 30 --batch-size 16
--threads 1 --out original`, and `forget original --random 0.1 --method ft --epochs 1 --threads 1
--out forgotten`.
"""

import json
import shutil
from pathlib import Path

import pytest

from qunlearn.runs.metrics import metrics_of
from qunlearn.store.run import Run

ASSETS = Path(__file__).parents[1] / "assets" / "older"
MADE_BY = sorted(folder.name for folder in ASSETS.iterdir() if folder.is_dir())


@pytest.fixture(params=MADE_BY)
def older(request, tmp_path, monkeypatch):
    """Both runs as they were, where they were: beside each other."""
    shutil.copytree(ASSETS / request.param, tmp_path / "runs")
    monkeypatch.chdir(tmp_path / "runs")
    return tmp_path / "runs"


def test_there_are_some_of_every_format():
    formats = {
        json.loads((ASSETS / name / "original" / "run.json").read_text()).get("format", 1)
        for name in MADE_BY
    }
    assert formats == {1, 2}


def test_an_older_run_is_read_measured_forgotten_from_and_shown(qunlearn, older):
    for name in ("original", "forgotten"):
        run = Run.open(Path(name))
        stored = metrics_of(run)
        code, out, err = qunlearn("evaluate", name, "--json")
        assert code == 0, err
        measured = json.loads(out)["metrics"]["parts"]
        # Rounding has changed since: a sample or two on the edge may fall on the other side.
        for part, scores in stored.parts.items():
            slack = 100 * max(2, 0.03 * scores.samples) / scores.samples
            assert measured[part]["accuracy"] == pytest.approx(scores.accuracy, abs=slack)
    words = ("--class", 3, "--method", "ft", "--epochs", 1, "--threads", 1, "--out", "again")
    code, _, err = qunlearn("forget", "forgotten", *words)
    assert code in (0, 3), err
    assert "forget_1" in metrics_of(Run.open(Path("again"))).parts  # the earlier request's samples
    code, _, err = qunlearn("report", "forgotten")
    assert code == 0, err
    page = (older / "forgotten" / "report.html").read_text()
    assert f"qunlearn {Run.open(Path('forgotten')).info.versions['qunlearn']}" in page
