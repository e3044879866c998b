from __future__ import annotations

import pytest
from data.toy_data import make_data
from data.toy_files import few_records, write_photos, write_tiny_imagenet

from qunlearn.data import ImageData


@pytest.fixture
def toy() -> ImageData:
    """40 training samples, ten of each class, and 8 test samples."""
    return make_data([k % 4 for k in range(40)], [k % 4 for k in range(8)])


@pytest.fixture
def few(monkeypatch):
    few_records(monkeypatch)


@pytest.fixture
def tiny(tmp_path):
    write_tiny_imagenet(tmp_path)
    return tmp_path / "tiny-imagenet-200"


@pytest.fixture
def photos(tmp_path):
    write_photos(tmp_path / "photos")
    return tmp_path / "photos"
