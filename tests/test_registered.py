"""The conformance kit, run over everything that is registered."""

from __future__ import annotations

import numpy as np
import pytest
from data import toy_files

from qunlearn.data import sources
from qunlearn.methods import all_methods
from qunlearn.models import models
from qunlearn.quant import families
from qunlearn.testing import check_method, check_model, check_quantizer, check_source


@pytest.mark.parametrize("name", [method.name for method in all_methods()])
def test_method(name):
    check_method(name)


@pytest.mark.parametrize(
    "settings",
    [{"forget_loss": "random-label"}, {"pairing": "once"}, {"when": "conflict"}, {"alpha": 0}],
    ids=str,
)
def test_variant_of_oeu(settings):
    check_method("oeu", **settings)


@pytest.mark.parametrize("name", [*families])
def test_quantizer(name):
    check_quantizer(name)


@pytest.mark.parametrize("name", [*models])
def test_model(name):
    check_model(name)


def write_npz(folder):
    chance = np.random.default_rng(0)
    images, labels = chance.integers(0, 256, (20, 5, 6, 3), dtype=np.uint8), np.arange(20) % 3
    np.savez(folder / "a.npz", x_train=images[:14], y_train=labels[:14],
             x_test=images[14:], y_test=labels[14:])  # fmt: skip


FILES = {
    "digits": None,  # come with scikit-learn
    "cifar10": toy_files.write_cifar10,
    "cifar100": toy_files.write_cifar100,
    "svhn": toy_files.write_svhn,
    "tiny-imagenet": toy_files.write_tiny_imagenet,
    "folder": toy_files.write_photos,
    "npz": write_npz,
}
"""What writes a small set of each source's files into a folder: add yours."""


@pytest.mark.parametrize("name", [*sources])
def test_source(name, tmp_path, monkeypatch):
    toy_files.few_records(monkeypatch)
    if FILES[name] is None:
        check_source(name)
        return
    FILES[name](tmp_path)
    check_source(name, data_dir=tmp_path / "a.npz" if name == "npz" else tmp_path)
