"""Something is fetched from the network only if the user typed so."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL
from sealed import seal

from qunlearn.data.sources import locate
from qunlearn.runs.config import TrainConfig
from qunlearn.runs.data import data_config
from qunlearn.store.run import Run


class Fetched(Exception):
    """The network would have been reached."""


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: Any) -> None:
        raise Fetched

    monkeypatch.setattr(locate, "_fetch", fetch)


def received(run_folder: Path, tmp_path: Path) -> Path:
    """A run whose settings ask to fetch another data set, with right checksums."""
    path = tmp_path / "received"
    shutil.copytree(run_folder, path)
    config = (path / "config.toml").read_text().replace('"digits"', '"cifar10"')
    cache = f'cache_dir = "{tmp_path / "cache"}"'
    (path / "config.toml").write_text(f"download = true\n{cache}\n{config}")
    seal(path)
    return path


def test_a_run_fetches_nothing(qunlearn, run_folder, tmp_path):
    path = received(run_folder, tmp_path)
    for words in (
        ("evaluate", path),
        ("forget", path, "--random", 0.1, "--out", tmp_path / "out"),
        ("compare", path, "--random", 0.1, "--out", tmp_path / "compared"),
    ):
        code, _, message = qunlearn(*words)
        assert code == 2, words
        assert "fetch them from the official address" in message


def test_neither_does_one_that_is_resumed_or_a_file(qunlearn, run_folder, tmp_path):
    path = received(run_folder, tmp_path)
    (path / "run.json").unlink()
    mine = tmp_path / "mine.toml"
    mine.write_bytes((path / "config.toml").read_bytes())
    for words in (
        ("train", "--resume", "--out", path),
        ("train", "--config", mine, "--out", tmp_path / "out"),
    ):
        code, _, message = qunlearn(*words)
        assert code == 2, words
        assert "fetch them from the official address" in message
    assert not (tmp_path / "out").exists()
    with pytest.raises(Fetched):
        qunlearn("train", "--config", mine, "--download", "--out", tmp_path / "out")


def test_it_is_not_put_on_record(run_folder):
    assert "download" not in TrainConfig.parse({**SMALL, "download": True}).to_dict()
    assert not data_config(Run.open(run_folder), download=True).download


def test_a_run_with_it_on_record_can_be_resumed(qunlearn, run_folder, tmp_path):
    path = tmp_path / "begun"
    shutil.copytree(run_folder, path)
    (path / "run.json").unlink()
    config = (path / "config.toml").read_text()
    (path / "config.toml").write_text(f"download = true\n{config}")
    assert qunlearn("train", "--resume", "--out", path)[0] == 0
