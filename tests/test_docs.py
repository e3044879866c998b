"""Documents that do not lie: links lead somewhere, and the README's program runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_readmes_program_runs(capsys):
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(program.replace("epochs=5", "epochs=1"), {})
    assert "times smaller" in capsys.readouterr().out


def test_the_page_on_measuring_has_a_program_that_runs(capsys):
    text = (ROOT / "docs" / "measuring.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(program, {})
    assert capsys.readouterr().out == "50.0\n"
