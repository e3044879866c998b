"""All that is installed is pinned: constraints.txt and hashes.txt belong to pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
REMEDY = "run `python tools/lock.py`"
PYTHONS = ("3.11", "3.12", "3.13")


def pins(file: str, python: str) -> dict[str, str]:
    """The version of each package that a file pins for a Python; never two."""
    text = (ROOT / file).read_text().replace("\\\n", " ")
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        requirement = Requirement(line.partition("--hash")[0])
        environment = {"python_version": python, "python_full_version": f"{python}.0"}
        if requirement.marker is None or requirement.marker.evaluate(environment):
            name = canonicalize_name(requirement.name)
            ((sign, version),) = [(s.operator, s.version) for s in requirement.specifier]
            assert sign == "=="
            assert name not in found, f"{name} is pinned twice for {python}"
            found[name] = version
    return found


def needed(wanted: list[str]) -> set[str]:
    """What the requirements need, and what that needs, as the installed packages say."""
    found: set[str] = set()
    queue = [Requirement(text) for text in wanted]
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        extras = {"", *requirement.extras}
        if requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in extras
        ):
            if name in found:
                continue
            found.add(name)
            for text in metadata.requires(name) or []:
                more = Requirement(text)
                if more.marker is None or any(more.marker.evaluate({"extra": e}) for e in extras):
                    more.marker = None
                    queue.append(more)
    return found


@pytest.mark.parametrize("python", PYTHONS)
def test_everything_that_make_test_installs_is_pinned(python):
    project = PROJECT["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    installed = needed([*wanted, *PROJECT["build-system"]["requires"]])
    # What torch needs for GPUs is torch's to say.
    gpu = {name for name in installed if re.match("nvidia-|cuda-|triton", name)}
    assert installed - gpu <= pins("constraints.txt", python).keys(), REMEDY
    assert len(installed) > 60


@pytest.mark.parametrize("python", PYTHONS)
def test_pins_are_within_the_bounds_of_the_project(python):
    pinned = pins("constraints.txt", python)
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
    for text in [*wanted, *(text for extra in extras for text in extra)]:
        requirement = Requirement(text)
        assert pinned[canonicalize_name(requirement.name)] in requirement.specifier, REMEDY


@pytest.mark.parametrize("python", PYTHONS)
def test_hashes_are_of_what_is_pinned(python):
    pinned, hashed = pins("constraints.txt", python), pins("hashes.txt", python)
    assert hashed.items() <= pinned.items(), REMEDY
    runtime = {canonicalize_name(Requirement(t).name) for t in PROJECT["project"]["dependencies"]}
    assert runtime - {"torch"} <= hashed.keys(), REMEDY
    assert "torch" not in hashed
    assert "pytest" not in hashed


def test_every_hashed_package_has_a_hash():
    text = (ROOT / "hashes.txt").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines
    for line in lines:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", line), line
