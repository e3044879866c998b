"""What `make release-check` checks before it builds anything, and that it can fail."""

from __future__ import annotations

import re
import runpy
import shutil
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import qunlearn as qu

ROOT = Path(__file__).parents[1]
CHECK = runpy.run_path(str(ROOT / "tools" / "release_check.py"))


def test_version_and_changelog_agree(tmp_path):
    assert CHECK["disagreements"]() == []
    (tmp_path / "src" / "qunlearn").mkdir(parents=True)
    for name in ("pyproject.toml", "CHANGELOG.md", "CITATION.cff", "src/qunlearn/__init__.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 9.9.9 (unreleased)\n")
    (tmp_path / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 8.8.8\n")
    changelog, citation = CHECK["disagreements"](tmp_path)
    assert "CHANGELOG.md has 9.9.9" in changelog
    assert "CITATION.cff has 8.8.8" in citation


def test_every_file_of_the_package_is_packed():
    """Templates, tables and C code: a wheel without them installs, and fails in use."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = tools["package-data"]["qunlearn"]
    files = CHECK["data_files"]()
    assert {"py.typed", "report/templates/page.css", "quant/kernels.c"} <= files
    assert [name for name in files if not any(fnmatch(name, each) for each in patterns)] == []


def test_a_wheel_that_lacks_a_file_is_found(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        for path in (ROOT / "src" / "qunlearn").rglob("*"):
            if path.is_file() and path.name != "page.css":
                wheel.write(path, f"qunlearn/{path.relative_to(ROOT / 'src' / 'qunlearn')}")
    assert CHECK["missing_from"](tmp_path / "a.whl") == ["report/templates/page.css"]


def test_mypy_checks_a_script_that_uses_every_public_name():
    script = ROOT / "tests" / "typed_user.py"
    files = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
    assert "tests/typed_user.py" in files  # so that `make lint` has it checked
    used = set(re.findall(r"\bqu\.(\w+)", script.read_text()))
    assert set(qu.__all__) - used == set()
