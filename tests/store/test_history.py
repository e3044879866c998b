"""The training history: as it is computed, as its file has it, and forged."""

import json
import re
from pathlib import Path

import pytest

from qunlearn.errors import UserError
from qunlearn.store.history import ConflictRecord, Epoch
from qunlearn.store.run import Run

ASSETS = Path(__file__).parents[1] / "assets" / "older"
TABLES = (((0.25, -0.5),), ((1.0, 2.0),), ((1.0, 1.5),), ((3.0, 4.0),))
RECORD = ConflictRecord(("a", "b"), (0,), (0.0, 1.0), *TABLES)
HISTORY = [
    Epoch(epoch=1, scalars={"forget_accuracy": 50.0}, seconds=0.5, elapsed=0.5),
    Epoch(
        epoch=2,
        lr=0.1,
        scalars={"loss": 2.5, "retain_accuracy": 1e-9},
        seconds=0.25,
        elapsed=0.75,
        compiled=False,
        pushed=0.5,
        above=-1.25,
        conflict=RECORD,
        collapsed=("layer.weight",),
    ),
]
LINES = """\
{"epoch": 1, "forget_accuracy": 50.0, "seconds": 0.5, "elapsed": 0.5}
{"epoch": 2, "lr": 0.1, "loss": 2.5, "retain_accuracy": 1e-09, "seconds": 0.25, "elapsed": 0.75, \
"compiled": false, "pushed": 0.5, "above": -1.25, "conflict": {"layers": ["a", "b"], "steps": [0], \
"share_in_conflict": [0.0, 1.0], "cosine": [[0.25, -0.5]], "forget_norm": [[1.0, 2.0]], \
"projected_norm": [[1.0, 1.5]], "retain_norm": [[3.0, 4.0]]}, "collapsed": ["layer.weight"]}
"""


def test_a_history_is_written_as_flat_rows_and_read_back_equal(tmp_path):
    run = Run.create(tmp_path / "run")
    for row in HISTORY:
        run.append_history(row)
    assert (run.path / "history.jsonl").read_text() == LINES
    assert run.history == HISTORY


@pytest.mark.parametrize("run", sorted(ASSETS.glob("*/*")), ids=lambda run: str(run)[-17:])
def test_a_history_of_an_older_version_is_read_and_written_alike(run):
    text = (run / "history.jsonl").read_text()
    if "elapsed" not in text:  # 0.1.0: the seconds since the start alone
        text = re.sub(r'"seconds": ([\d.]+)', r'"seconds": \1, "elapsed": \1', text)
    assert "".join(json.dumps(row.to_json()) + "\n" for row in Run(run).history) == text


@pytest.mark.parametrize(
    ("row", "place"),
    [
        *((1, "content"), ([], "content"), ({}, "epoch"), ({"epoch": 1}, "seconds")),
        *(({"loss": "low"}, "loss"), ({"loss": None}, "loss"), ({"scalars": {}}, "scalars")),
        *(({"lr": [1]}, "lr"), ({"epoch": 1.5}, "epoch"), ({"pushed": 10**400}, "pushed")),
        *(({"collapsed": "abc"}, "collapsed"), ({"collapsed": [1]}, r"collapsed\.0")),
        *(({"conflict": []}, "conflict"), ({"conflict": {}}, r"conflict\.layers")),
    ],
)
def test_a_forged_row_is_refused_in_one_sentence(tmp_path, row, place):
    if isinstance(row, dict) and row not in ({}, {"epoch": 1}):
        row = {"epoch": 1, "seconds": 0.5, **row}
    run = Run.create(tmp_path / "run")
    (run.path / "history.jsonl").write_text(json.dumps(row))
    with pytest.raises(UserError, match=rf"history\.jsonl' is invalid \({place}: [^\n]*\Z"):
        _ = run.history
