"""Something is fetched from the network, or cached elsewhere, only if the user typed so."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL
from PIL import Image
from sealed import seal
from surroundings import digest

from qunlearn.data.sources import locate
from qunlearn.runs import data
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
    code, _, message = qunlearn("train", "--config", mine, "--download", "--out", tmp_path / "out")
    assert (code, "Fetched" in message) == (1, True)


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


def test_no_image_is_cached_in_a_folder_that_a_run_names(qunlearn, tmp_path, monkeypatch):
    """Nor is anything deleted there, or the folder closed to others."""
    images, own = tmp_path / "elsewhere" / "images", tmp_path / "own"
    photos = tmp_path / "photos"
    for number in range(12):
        place = photos / "train" / f"class {number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(place / f"{number}.png")
    monkeypatch.setenv("XDG_CACHE_HOME", str(own))
    monkeypatch.setattr(data, "load_dataset", partial(data.load_dataset, memory_budget=100))
    words = ("--dataset", photos, "--model", "cnn", "--epochs", 1, "--batch-size", 4)
    assert qunlearn("train", *words, "--threads", 1, "--out", tmp_path / "run")[0] == 0
    shutil.rmtree(own)
    images.mkdir(parents=True)
    (images / ".writing-0").write_text("somebody's")
    before = digest(images.parent)
    path = tmp_path / "run"
    config = (path / "config.toml").read_text()
    (path / "config.toml").write_text(f'cache_dir = "{images.parent}"\n{config}')
    seal(path)
    asked = ("forget", path, "--random", 0.2, "--method", "ft", "--epochs", 1)
    assert qunlearn("evaluate", path)[0] == 0
    assert qunlearn(*asked, "--out", tmp_path / "new")[0] == 0
    (path / "run.json").unlink()
    assert qunlearn("train", "--resume", "--out", path)[0] == 0
    assert digest(images.parent) == before
    assert list((own / "qunlearn" / "images").glob("*.npy"))
