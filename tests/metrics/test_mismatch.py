"""Whether a network gets its inputs as it was trained on them: the tests' error rates."""

import numpy as np
import pytest
import torch

from qunlearn.metrics.exposure import exposure
from qunlearn.metrics.mismatch import best_order, guesses, halves_errors


def normal(mean, count, seed):
    return torch.from_numpy(np.random.default_rng(seed).normal(mean, 1, count))


def answers(right, count, classes, seed):
    """Logits that are right with this probability, and the labels."""
    random = np.random.default_rng(seed)
    labels = random.integers(classes, size=count)
    wrong = (labels + random.integers(1, classes, size=count)) % classes
    found = np.where(random.random(count) < right, labels, wrong)
    return torch.eye(classes)[found], torch.from_numpy(labels)


@pytest.mark.parametrize("test", [0, 500])
def test_swapped_lists_are_found_out(test):
    found = exposure(normal(0.0, 200, 0), normal(3.0, 1000, 1), normal(0.0, test, 2))
    assert found.verdict == "swapped"


@pytest.mark.parametrize("gap", [0.0, 0.2, 8.0])
def test_honest_lists_are_not_called_swapped_however_well_a_network_generalises(gap):
    """With no gap at all it is one in a thousand; with any it is none."""
    verdicts = [
        exposure(normal(gap, 100, 3 * i), normal(0, 50, 3 * i + 1), normal(0, 200, 3 * i + 2))
        for i in range(300)
    ]
    assert sum(found.verdict == "swapped" for found in verdicts) <= (2 if gap == 0 else 0)


def test_a_test_part_that_is_easier_than_all_else_does_not_make_lists_look_swapped():
    found = exposure(normal(0.0, 5000, 0), normal(0.3, 500, 1), normal(0.3, 5000, 2))
    assert found.verdict == "cannot be told"


@pytest.mark.parametrize(
    ("right", "count", "classes", "often"),
    [
        (0.1, 200, 10, 0.95),  # by guessing
        (0.5, 400, 2, 0.95),
        (0.3, 200, 10, 0.01),  # badly trained, but trained
        (0.99, 50, 10, 0.0),
        (0.9, 7, 2, 0.01),  # too few to tell
    ],
)
def test_guessing_is_told_from_knowing_little(right, count, classes, often):
    found = np.mean([guesses(*answers(right, count, classes, seed)) for seed in range(100)])
    assert found >= often if often > 0.5 else found <= often + 0.02


def test_answers_that_are_always_the_same_are_guesses_however_common_the_class_is():
    labels = torch.tensor([0] * 950 + [1] * 50)
    assert guesses(torch.eye(2)[labels * 0], labels)
    assert not guesses(torch.eye(2)[labels], labels)


def test_half_as_many_errors_are_seldom_called_less_than_half():
    random = np.random.default_rng(0)
    pairs = random.poisson((100, 50), size=(1000, 2))
    assert np.mean([halves_errors(*map(int, pair)) for pair in pairs]) <= 0.02
    assert halves_errors(100, 20)


def test_no_order_of_classes_fits_guesses():
    logits, labels = answers(0.1, 300, 10, 0)
    _, errors = best_order(logits, labels)
    assert not halves_errors(int((logits.argmax(dim=1) != labels).sum()), errors)
