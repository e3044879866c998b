"""A small network that has forgotten, and an officer's keys; made once for all workers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import made_once

from qunlearn.evidence.keys import new_keys
from qunlearn.runs.forget import forget_run
from qunlearn.runs.request import ForgetConfig


@pytest.fixture(scope="session")
def forgotten(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has forgotten a tenth of its samples; not to be changed."""
    asked = {"run": run_folder, "random": 0.1, "method": "ga", "threads": 1}
    return (
        made_once(
            tmp_path_factory,
            "evidence",
            lambda base: forget_run(ForgetConfig.parse(asked), base / "forgotten"),
        )
        / "forgotten"
    )


@pytest.fixture
def tree(forgotten: Path, run_folder: Path, tmp_path: Path) -> Path:
    """A folder of one's own with both runs, `original` and `forgotten`."""
    for run in (run_folder, forgotten):
        shutil.copytree(run, tmp_path / run.name)
    return tmp_path


@pytest.fixture
def officer(tmp_path: Path) -> Path:
    """The officer's private key."""
    return new_keys(tmp_path / "officer.pem").private
