"""A run that has forgotten, which hostile files are put beside or into copies of."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import made_once

from qunlearn.runs.forget import forget_run
from qunlearn.runs.request import ForgetConfig


@pytest.fixture(scope="session")
def forgotten(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has forgotten, not to be changed."""
    request = {"run": run_folder, "random": 0.1, "method": "ft", "settings": {"epochs": 1}}

    def make(base: Path) -> None:
        forget_run(ForgetConfig.parse({**request, "threads": 1}), base / "run")

    return made_once(tmp_path_factory, "forgotten", make) / "run"
