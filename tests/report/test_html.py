"""Templates are the package's own, escape what they are given, and lack nothing in silence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jinja2 import TemplateNotFound, UndefinedError
from report.made_up import comparison, table

from qunlearn.report import report_comparison
from qunlearn.report.html import render, unbroken

REPORT = Path(__file__).parents[2] / "src/qunlearn/report"


def test_templates_in_the_working_folder_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = comparison(tmp_path / "table", table())
    plain = report_comparison(folder).read_text()
    for place in (tmp_path, tmp_path / "templates", tmp_path / "qunlearn/report/templates"):
        place.mkdir(parents=True, exist_ok=True)
        for name in ("base.html.j2", "comparison.html.j2", "macros.html.j2", "page.css"):
            (place / name).write_text("planted")
    (tmp_path / "own.html.j2").write_text("planted")
    monkeypatch.chdir(tmp_path)
    assert report_comparison(folder).read_text() == plain
    for name in ("own.html.j2", "../html.py", str(tmp_path / "own.html.j2")):
        with pytest.raises(TemplateNotFound):
            render(name)


def test_what_a_template_lacks_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="undefined"):
        render("comparison.html.j2", folder="a")


def test_only_figures_are_taken_as_html() -> None:
    for path in (REPORT / "templates").iterdir():
        assert not re.search(r"\|\s*safe|autoescape|Markup", path.read_text()), path
    marking = {path.name for path in REPORT.glob("*.py") if "Markup(" in path.read_text()}
    assert marking == {"drawing.py"}


def test_a_number_stays_with_its_percent_sign() -> None:
    assert unbroken(5) == "5"
    assert unbroken("5 % of 7 %") == "5\N{NO-BREAK SPACE}% of 7\N{NO-BREAK SPACE}%"
