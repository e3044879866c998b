"""Documents that do not lie: links lead somewhere, and the README's program runs."""

import re
from pathlib import Path

import pytest

from qunlearn.methods import constants
from qunlearn.store.run import Run

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_readmes_program_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(program.replace("epochs=5", "epochs=1"), {})
    assert "times smaller" in capsys.readouterr().out
    assert Run.is_complete(tmp_path / "runs" / "forgotten")
    assert (tmp_path / "model.onnx").is_file()


def test_the_tuned_constants_are_those_of_the_code():
    assert constants.table() in (ROOT / "docs" / "calibration.md").read_text()


def test_the_page_on_measuring_has_a_program_that_runs(capsys):
    text = (ROOT / "docs" / "measuring.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(program, {})
    assert capsys.readouterr().out == "50.0\n"


def test_the_page_on_data_has_a_program_that_runs(capsys):
    text = (ROOT / "docs" / "data.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(program, {})
    told = capsys.readouterr().out
    assert "100 images of 1×8×8 (20 test), 10 classes; mean 0.5, std 0.25; crop 1)" in told
    assert "forget 4" in told


def test_the_page_on_quantizers_has_one_that_passes_the_conformance_kit():
    from qunlearn.quant import families

    text = (ROOT / "docs" / "quantizers.md").read_text()
    *_, program = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    try:
        exec(program, {})
        assert "absmax" in families
    finally:
        families.drop("absmax")
