"""Methods from elsewhere: a file of one's own, and an installed package."""

import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

from qunlearn.errors import Failure, UserError
from qunlearn.methods import all_methods, find, find_method, forget
from qunlearn.methods.base import methods

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "write-a-method.md"


@pytest.fixture
def neggrad(tmp_path, monkeypatch):
    """The file that the page shows, as a module that can be imported."""
    own, check, loop = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(own.splitlines()) <= 30
    (tmp_path / "neggrad.py").write_text(own)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    kept = dict(methods._entries)
    yield check, loop
    methods._entries.clear()
    methods._entries.update(kept)
    sys.modules.pop("neggrad", None)


def test_the_pages_own_method_runs(neggrad, trained, asked):
    assert find_method("neggrad:neggrad").source == "Kurmanji et al. 2023"
    result = forget(trained, asked, "neggrad:neggrad", epochs=1, batch_size=60, climb=1.0)
    plain = forget(trained, asked, "neggrad:neggrad", epochs=1, batch_size=60, climb=0.0)
    assert result.config.climb == 1.0
    names = ("fc.weight",)
    assert not any(
        torch.equal(result.model.state_dict()[n], plain.model.state_dict()[n]) for n in names
    )


def test_the_pages_own_method_passes_the_conformance_kit(neggrad):
    exec(neggrad[0], {})


def test_the_pages_own_loop_runs(neggrad):
    exec(neggrad[1], {})


def offer(monkeypatch, *entries):
    made = [EntryPoint(name, value, find.GROUP) for name, value in entries]
    monkeypatch.setattr(find, "entry_points", lambda group: made if group == find.GROUP else [])


def test_a_package_offers_a_method_by_entry_point(neggrad, monkeypatch):
    sys.path.append(str(Path.cwd()))
    offer(monkeypatch, ("neggrad", "neggrad"))
    assert "neggrad" not in methods
    assert find_method("neggrad").name == "neggrad"
    assert "neggrad" in [method.name for method in all_methods()]


def test_a_broken_package_breaks_only_its_own_method(monkeypatch):
    offer(monkeypatch, ("shiny", "no_such_module"))
    assert find_method("calibrated").name == "calibrated"
    with pytest.warns(UserWarning, match="shiny"):
        assert len(all_methods()) == 11
    with pytest.raises(UserError, match="cannot be loaded: ModuleNotFoundError"):
        find_method("shiny")


def test_an_entry_that_enters_no_method_is_named(monkeypatch):
    offer(monkeypatch, ("shiny", "json"))
    with pytest.raises(UserError, match="enters none of that name"):
        find_method("shiny")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def x(:", "cannot be loaded: SyntaxError"),
        ("raise RuntimeError('at home')", "cannot be loaded: RuntimeError: at home"),
        ("from nowhere import x", "No module named 'nowhere'"),
    ],
)
def test_a_file_that_cannot_be_imported_is_named(neggrad, text, says):
    Path("broken.py").write_text(text)
    with pytest.raises(UserError, match=says):
        find_method("broken:x")


def test_a_method_that_fails_is_named_with_its_line(neggrad, trained, asked):
    own = Path("neggrad.py").read_text().replace("-config.climb", "None")
    Path("neggrad.py").write_text(own)
    with pytest.raises(Failure, match=r"'neggrad' failed: .*no model is kept"):
        forget(trained, asked, "neggrad:neggrad", epochs=1)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("oeuu", "did you mean 'oeu'"),
        ("nowhere.at.all:x", "cannot be found"),
        ("json:x", "Unknown method in 'json': 'x'"),
        ("json:calibrated", "Unknown method in 'json': 'calibrated'"),
        ("salum", "did you mean 'salun'"),
    ],
)
def test_unknown_methods_are_named(name, says):
    with pytest.raises(UserError, match=says):
        find_method(name)


def test_every_method_has_ranges_among_its_settings_that_hold_the_default():
    found = all_methods()
    assert [m.name for m in found] == [
        "retrain", "ft", "ga", "iu", "rl", "l1-sparse", "salun", "qmul", "regun",
        "oeu", "calibrated",
    ]  # fmt: skip
    for method in found:
        for name, where in method.config.search.items():
            field = method.config.model_fields[name]
            assert where.low <= field.default <= where.high
        assert method.summary.endswith(".")
        assert method.source
