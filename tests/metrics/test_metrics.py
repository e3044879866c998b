import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score

from qunlearn.metrics import accuracy
from qunlearn.metrics.confidence import margin
from qunlearn.metrics.exposure import exposure


def test_accuracy_agrees_with_scikit_learn():
    torch.manual_seed(0)
    logits, labels = torch.randn(101, 7), torch.randint(0, 7, (101,))
    expected = 100 * accuracy_score(labels, logits.argmax(1))
    assert accuracy(logits, labels) == pytest.approx(expected, abs=1e-9)


def test_accuracy_refuses_nothing_and_unequal_lengths():
    with pytest.raises(ValueError, match="no sample"):
        accuracy(torch.zeros(0, 3), torch.zeros(0))
    with pytest.raises(ValueError, match="2 predictions for 3"):
        accuracy(torch.zeros(2, 3), torch.zeros(3))


def test_margin_is_the_logit_of_the_confidence():
    torch.manual_seed(0)
    logits, labels = torch.randn(50, 6, dtype=torch.float64), torch.randint(0, 6, (50,))
    p = logits.softmax(1)[torch.arange(50), labels]
    assert torch.allclose(margin(logits, labels), torch.log(p / (1 - p)))


def test_margin_keeps_very_sure_samples_apart():
    logits = torch.tensor([[50.0, 0.0], [60.0, 0.0]])
    assert margin(logits, torch.tensor([0, 0])).tolist() == [50.0, 60.0]


def normal(mean, count, seed):
    return torch.from_numpy(np.random.default_rng(seed).normal(mean, 1, count))


@pytest.mark.parametrize(
    ("held_out", "test", "verdict"),
    [
        (0.0, 0.0, "unseen"),
        (3.0, 0.0, "trained on"),
        (1.5, 0.0, "mixed"),
        (3.0, 3.0, "cannot be told"),
    ],
)
def test_exposure_finds_out_what_the_held_out_part_is(held_out, test, verdict):
    train = normal(3.0, 1000, 0)
    assert exposure(train, normal(held_out, 200, 1), normal(test, 500, 2)).verdict == verdict


def test_exposure_of_too_few_samples_is_not_called_unseen():
    train, test = normal(1.0, 500, 0), normal(0.0, 500, 1)
    found = exposure(train, normal(0.5, 3, 2), test)
    assert found.verdict == "cannot be told"
    assert (found.samples, found.reason) == (3, "few samples")


def test_exposure_seldom_accuses_unseen_data():
    train, test = normal(3.0, 500, 0), normal(0.0, 500, 1)
    verdicts = [exposure(train, normal(0.0, 30, 2 + i), test).verdict for i in range(200)]
    assert verdicts.count("unseen") >= 194


def test_exposure_without_a_test_part_says_so():
    found = exposure(normal(3, 10, 0), normal(0, 10, 1), torch.zeros(0))
    assert found.verdict == "cannot be told"
    assert found.reason == "no test part"
