"""`qunlearn check`: whole, or what is wrong."""

import json
import shutil
from pathlib import Path

import pytest
from sealed import seal

from qunlearn.report.words import fault_words
from qunlearn.runs.check import check_run
from qunlearn.runs.forget import forget_run
from qunlearn.runs.request import ForgetConfig
from qunlearn.store.study import StudyFolder
from qunlearn.study.check import check_folder


@pytest.fixture
def run(run_folder, tmp_path) -> Path:
    return Path(shutil.copytree(run_folder, tmp_path / "run"))


def test_a_whole_run(qunlearn, run):
    (run / "report.html").touch()  # others may add a report
    (run / "figures").mkdir()
    assert check_run(run) == []
    assert qunlearn("check", run) == (0, "1 of 1 checked are intact.\n", "")


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


def broken(name, content):
    """A harm by somebody who takes the checksums anew."""

    def harm(run):
        (run / name).write_bytes(content)
        seal(run)

    return harm


def swapped(run):
    """A manifest that is valid, but not the one that the model carries."""
    manifest = json.loads((run / "split.json").read_text())
    (run / "split.json").write_text(json.dumps({**manifest, "seed": 1}))
    seal(run)


def other_weights(run):
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**info, "model_sha256": "0" * 64}))
    seal(run)


def linked(run):
    (run / "metrics.json").rename(run.parent / "elsewhere")
    (run / "metrics.json").symlink_to(run.parent / "elsewhere")


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda run: (run / "run.json").unlink(), "was not finished"),
        (lambda run: (run / "model.safetensors").unlink(), "model.safetensors' is missing"),
        (lambda run: (run / "predictions.safetensors").unlink(), "predictions.safetensors' is mis"),
        (lambda run: (run / "checksums.txt").unlink(), "checksums.txt' is missing"),
        (lambda run: cut(run / "history.jsonl"), "history.jsonl' has changed since"),
        (lambda run: cut(run / "model.safetensors"), "model.safetensors' has changed since"),
        (lambda run: (run / ".writing-abc").touch(), "left of a process that was interrupted"),
        (lambda run: (run / "notes.txt").touch(), "notes.txt' is no part of what qunlearn writes"),
        (broken("metrics.json", b"[" * 100_000), "metrics.json' is not valid JSON"),
        (broken("model.safetensors", b"x" * 100), "not an intact safetensors file"),
        (broken("run.json", b"[]"), "run.json' is damaged"),
        (broken("run.json", b'{"format": 99}'), "has format 99"),
        (broken("split.json", b"{}"), "split manifest is not valid"),
        (swapped, "not the one that the model carries"),
        (other_weights, "name different weights"),
        (linked, "metrics.json' is a link"),
    ],
)
def test_what_is_wrong_is_named(qunlearn, run, harm, says):
    harm(run)
    (fault,) = check_run(run)
    assert says in fault_words(fault)
    code, out, err = qunlearn("check", run)
    assert code == 1
    assert fault_words(fault) in out
    assert err == f"qunlearn: {str(run)!r} is not intact.\n"


def test_what_is_no_run_was_asked_wrongly(qunlearn, tmp_path):
    assert qunlearn("check", tmp_path / "none")[0] == 2
    assert qunlearn("check", tmp_path)[0] == 2


def test_every_cell_of_a_comparison_is_checked(qunlearn, run_folder, tmp_path):
    table = tmp_path / "table"
    (table / "cells" / "ft").mkdir(parents=True)
    (table / "compare.toml").write_text("seeds = 2\n")
    StudyFolder(table).write_table({})
    asked = {"run": run_folder, "random": 0.1, "method": "ft", "threads": 1}
    config = ForgetConfig.parse({**asked, "settings": {"epochs": 1}})
    forget_run(config, table / "cells" / "ft" / "seed0")
    shutil.copytree(run_folder, table / "cells" / "ft" / "seed1")
    assert not any(check_folder(table).values())
    cut(table / "cells" / "ft" / "seed1" / "metrics.json")
    (table / "table.json").write_text("{")
    code, out, _ = qunlearn("check", table, "--json")
    told = json.loads(out)
    assert (code, told["checked"]) == (1, 3)
    assert set(told["faults"]) == {str(table), str(table / "cells" / "ft" / "seed1")}
