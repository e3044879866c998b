"""`qunlearn report`, as it is called."""

import json

import pytest
import torch
from report.made_up import comparison, table

from qunlearn.cli.main import main
from qunlearn.report.run import report_run, retrain_of
from qunlearn.runs.data import split_of
from qunlearn.runs.evaluate import predictions
from qunlearn.runs.forget import forget_run
from qunlearn.runs.model_file import load
from qunlearn.runs.request import ForgetConfig
from qunlearn.store.run import Run


def call(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(["report", *map(str, words)])
    output = capsys.readouterr()
    return stop.value.code or 0, output.out, output.err


def test_it_says_where_the_page_is(tmp_path, capsys):
    folder = comparison(tmp_path / "table", table())
    code, out, _ = call(capsys, folder, "--json")
    assert code == 0
    assert json.loads(out) == {"folder": str(folder), "page": str(folder / "report.html")}
    assert (folder / "report.html").is_file()
    code, out, _ = call(capsys, folder)
    assert (code, out) == (0, f"The report is in {folder / 'report.html'}.\n")


def test_an_image_that_cannot_be_shown_gets_one_sentence(tmp_path, capsys):
    folder = comparison(tmp_path / "table", table())
    code, out, err = call(capsys, folder, "--image")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "leave --image out" in err
    assert not (folder / "report.html").exists()


def test_a_folder_that_is_neither_gets_one_sentence(tmp_path, capsys):
    code, out, err = call(capsys, tmp_path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "neither a run nor a comparison" in err
    assert list(tmp_path.iterdir()) == []


def test_a_retrain_without_all_requests_at_once_is_compared_sample_by_sample(run_folder, tmp_path):
    split = split_of(Run.open(run_folder))
    asked = [split.data.ids[row] for row in split.train[:30].tolist()]
    for name, ids in (("first", asked[:10]), ("second", asked[10:]), ("both", asked[::-1])):
        (tmp_path / f"{name}.txt").write_text("\n".join(ids))
    for out, origin, ids, method in (
        ("one", run_folder, "first", "ga"),
        ("two", tmp_path / "one", "second", "ga"),
        ("retrain", run_folder, "both", "retrain"),
    ):
        wanted = {"run": origin, "ids": tmp_path / f"{ids}.txt", "method": method, "threads": 1}
        forget_run(ForgetConfig.parse(wanted), tmp_path / out)
    run = Run.open(tmp_path / "two")
    split = split_of(run)
    found = retrain_of(tmp_path / "retrain", run, split).outputs
    expected = predictions(load(tmp_path / "retrain"), split)
    assert found.keys() == expected.keys() >= {"forget", "forget_1", "retain", "test"}
    for part, rows in expected.items():
        torch.testing.assert_close(found[part], rows, rtol=1e-4, atol=1e-4)
    assert report_run(tmp_path / "two", reference=tmp_path / "retrain").is_file()
