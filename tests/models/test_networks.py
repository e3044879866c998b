from __future__ import annotations

import pytest
import torch
from torch import nn

from qunlearn.errors import UserError
from qunlearn.models import ImageShape, ModelSpec, models

each_model = pytest.mark.parametrize("name", ["resnet18", "mobilenetv2", "cnn"])


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@each_model
def test_an_image_of_64_pixels_is_halved_in_the_stem(name: str) -> None:
    """So that the network costs no more than on 32 pixels."""
    strides = {}
    for size in (8, 32, 64):
        model = ModelSpec(name, 10, 3, size, 0.125).build()
        first = next(m for m in model.modules() if isinstance(m, nn.Conv2d))
        strides[size] = first.stride[0]
    assert strides == {8: 1, 32: 1, 64: 2}


@pytest.mark.parametrize(
    ("name", "classes", "expected"),
    [
        ("resnet18", 10, 11_173_962),
        ("resnet18", 100, 11_220_132),
        ("mobilenetv2", 10, 2_236_682),  # torchvision's 3,504,872 with a head for ten
        ("mobilenetv2", 1000, 3_504_872),
    ],
)
def test_published_parameter_counts(name: str, classes: int, expected: int) -> None:
    assert count(ModelSpec(name, classes, 3, 32).build()) == expected


@each_model
def test_the_width_multiplies_channels_but_not_the_classes(name: str) -> None:
    counts = [count(ModelSpec(name, 10, 3, 32, w).build()) for w in (0.25, 0.5, 1.0)]
    assert counts[0] < counts[1] < counts[2]
    # a convolution's weights go with the square of the width; MobileNetV2's last one does not
    assert counts[2] / counts[1] == pytest.approx(4, rel=0.2 if name == "resnet18" else 0.25)


def test_mobilenet_s_last_layer_is_never_narrowed() -> None:
    widths = {w: ModelSpec("mobilenetv2", 10, 3, 32, w).build() for w in (0.25, 1.0, 2.0)}
    assert [m.classifier.in_features for m in widths.values()] == [1280, 1280, 2560]


def test_an_unknown_model_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match="'resnet19': did you mean 'resnet18'"):
        ModelSpec("resnet19", 10, 3, 32).build()


@pytest.mark.parametrize("width", [0, -1, float("nan"), float("inf"), "1", None])
def test_an_impossible_width_is_refused(width: object) -> None:
    with pytest.raises(UserError, match="The width"):
        ModelSpec("resnet18", 10, 3, 32, width).build()  # type: ignore[arg-type]


def test_a_model_of_one_s_own_is_one_function_and_one_line() -> None:
    @models.register("straight")
    def straight(shape: ImageShape, classes: int, width: float) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(shape.channels * shape.size**2, classes))

    try:
        model = ModelSpec("straight", 7, 2, 5).build()
        assert model(torch.zeros(3, 2, 5, 5)).shape == (3, 7)
    finally:
        del models._entries["straight"]


def test_a_spec_goes_through_a_dictionary() -> None:
    spec = ModelSpec("resnet18", 10, 3, 32, 0.25)
    assert ModelSpec(**spec.to_dict()) == spec
