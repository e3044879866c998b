"""The one sample whose answer a page shows."""

import warnings

import pytest
import torch

from qunlearn.report.outputs import Outputs
from qunlearn.report.sample import Sample, image_panel, sample_panel


def outputs(probabilities, labels):
    """A model that answers so on the forgotten samples."""
    return Outputs.of({"forget": torch.tensor(probabilities).log()}, {"forget": labels})


LABELS = torch.tensor([2, 0, 1])
NAMES = ("cat", "dog", "ship")
BEFORE = outputs([[0.1, 0.1, 0.8], [0.9, 0.05, 0.05], [0.01, 0.98, 0.01]], LABELS)
AFTER = outputs([[0.2, 0.2, 0.6], [0.3, 0.6, 0.1], [0.04, 0.9, 0.06]], LABELS)


def test_it_is_the_one_that_lost_most():
    sample = Sample.telling(LABELS, NAMES, BEFORE, AFTER)
    assert (sample.place, sample.truth, sample.names) == (1, 0, NAMES)
    assert "lost most confidence: 90 % before, 30 % in Retrain." in sample.words(by_retrain=True)
    back = Sample.telling(LABELS, NAMES, AFTER, BEFORE)
    assert (back.place, back.truth) == (2, 1)
    said = back.words(by_retrain=False)
    assert "No forgotten sample's true class lost confidence" in said
    assert "90 % before, 98 % after" in said


def test_the_panel_has_each_model_and_the_truth():
    sample = Sample.telling(LABELS, NAMES, BEFORE, AFTER)
    answers = {"before": BEFORE, "Retrain": None, "after": AFTER}
    panel = sample_panel("calibrated", sample, answers)
    assert panel.alt.endswith("True class: before 90 %, after 30 %.")
    for words in ("cat (true)", ">dog<", ">ship<", ">before<", ">after<"):
        assert words in panel.svg
    assert "Retrain" not in panel.svg
    assert "dog (true)" not in panel.svg


def test_of_many_classes_the_truth_and_the_likeliest_are_shown():
    torch.manual_seed(0)
    labels = torch.tensor([77])
    sure = torch.full((1, 100), 1e-6)
    sure[0, 77] = 1
    # The truth is the least likely of all afterwards, and still shown; so is another's favourite.
    spread = torch.rand(1, 100)
    spread[0, 77] = 1e-9
    other = torch.full((1, 100), 1e-6)
    other[0, 5] = 1
    models = [outputs((p / p.sum()).tolist(), labels) for p in (sure, spread, other)]
    sample = Sample.telling(labels, [f"class {i}" for i in range(100)], *models)
    shown = sample.shown.tolist()
    assert shown == sorted(shown)
    assert len(shown) == 10
    assert shown[sample.truth] == 77
    assert sample.names[sample.truth] == "class 77"
    assert set(shown) >= {5, 77} | set(spread[0].topk(8).indices.tolist())


@pytest.mark.parametrize("length", [3, 40])
def test_names_leave_room_for_the_bars(length):
    title = "oeu[forget_loss=random-label]"
    names = [name.ljust(length, "x") for name in NAMES]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib's only sign that no room was left
        sample = Sample.telling(LABELS, names, BEFORE, AFTER)
        panel = sample_panel(title, sample, {"before": BEFORE, "Retrain": AFTER, "after": AFTER})
    assert ("…" in panel.svg) == (length > 20)


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
def test_an_image_of_any_kind_is_drawn(channels, kind):
    image = torch.arange(channels * 12).reshape(channels, 3, 4).to(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib's sign that values were cut off
        panel = image_panel(image, "cat")
        flat = image_panel(torch.zeros_like(image), "cat")
    assert "base64" in panel.svg
    assert panel.svg != flat.svg
