"""Models of the user's own, by `package.module:factory`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from qunlearn.errors import UserError
from qunlearn.models import ModelSpec

SOURCE = """
from torch import nn

def with_classes(num_classes):
    return nn.Linear(4, num_classes)

def with_keywords(**settings):
    return nn.Linear(4, settings["num_classes"])

def with_defaults(num_classes=3, depth=1):
    return nn.Linear(4, num_classes)

class Net(nn.Linear):
    def __init__(self, num_classes):
        super().__init__(4, num_classes)

def without_arguments():
    return nn.Linear(4, 2)

calls = []

def broken(num_classes=1):
    calls.append(num_classes)
    raise TypeError("a mistake of the user's own")

def demanding(depth, width):
    return nn.Linear(4, 2)

def wrong():
    return "a model"

number = 3
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "my_models.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "my_models"
    sys.modules.pop("my_models", None)


def spec(name: str) -> ModelSpec:
    return ModelSpec(name, classes=5, channels=1, size=2)


@pytest.mark.parametrize(
    ("factory", "classes"),
    [
        ("with_classes", 5),
        ("with_keywords", 5),
        ("with_defaults", 5),
        ("Net", 5),
        ("without_arguments", 2),
    ],
)
def test_a_factory_gets_the_number_of_classes_if_it_takes_it(
    mine: str, factory: str, classes: int
) -> None:
    assert spec(f"{mine}:{factory}").is_factory
    model = spec(f"{mine}:{factory}").build(seed=3)
    assert model(torch.zeros(1, 4)).shape == (1, classes)
    assert torch.equal(model.weight, spec(f"{mine}:{factory}").build(seed=3).weight)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("my_models:nothing", "'my_models:nothing' cannot be found"),
        ("no_such_module:make", "cannot be found.*no_such_module.*package.module:function"),
        ("my_models:", "cannot be found"),
        (":make", "cannot be found"),
        ("my_models:demanding", "cannot be called.*num_classes"),
        ("my_models:number", "cannot be called"),
        ("my_models:wrong", "returned str; return a torch nn.Module"),
    ],
)
def test_a_factory_that_cannot_be_used_is_refused(mine: str, path: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        spec(path).build()


def test_a_mistake_inside_a_factory_is_named_with_its_line_and_not_tried_again(mine: str) -> None:
    with pytest.raises(UserError, match=r"a mistake of the user's own .*line 24") as said:
        spec(f"{mine}:broken").build()
    assert isinstance(said.value.__cause__, TypeError)
    assert sys.modules[mine].calls == [5]
