"""`qunlearn report`, as it is called."""

import json

import pytest
from report.made_up import comparison, table

from qunlearn.cli.main import main


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


def test_a_folder_that_is_neither_gets_one_sentence(tmp_path, capsys):
    code, out, err = call(capsys, tmp_path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "neither a run nor a comparison" in err
    assert list(tmp_path.iterdir()) == []
