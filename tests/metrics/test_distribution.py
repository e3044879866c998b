"""The distance of two samples, beside scipy's."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import ks_2samp, kstwobign

from qunlearn.metrics import ks_chance, ks_distance

# With ties, which a distance by ranks gets wrong.
VALUES = st.lists(st.sampled_from([-math.inf, -3.0, -0.5, 0.0, 0.25, 7.0]), min_size=1, max_size=30)
NUMBERS = st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=30)


@given(VALUES | NUMBERS, VALUES | NUMBERS)
@example(first=[1.0], second=[1.0])
@example(first=[1.0], second=[2.0])
def test_the_distance_is_scipys(first, second):
    expected = ks_2samp(np.clip(first, -99, 99), np.clip(second, -99, 99), method="asymp").statistic
    found = ks_distance(torch.tensor(first), torch.tensor(second))
    assert found == pytest.approx(expected, abs=1e-6)
    assert found == ks_distance(torch.tensor(second), torch.tensor(first))


@given(NUMBERS, NUMBERS)
def test_the_distance_is_the_same_of_log_odds_and_of_confidences(first, second):
    odds = [
        torch.tensor(each, dtype=torch.float64).clamp(-20, 20).round() for each in (first, second)
    ]
    assert ks_distance(*odds) == ks_distance(*(each.sigmoid() for each in odds))


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_chance_is_the_asymptotic_formula(first, second):
    wanted = kstwobign.isf(0.01) / math.sqrt(first * second / (first + second))
    assert ks_chance(first, second) == pytest.approx(min(1.0, wanted), rel=1e-3)


@pytest.mark.parametrize(("first", "second"), [(200, 300), (450, 60)])
def test_samples_of_one_distribution_are_beyond_chance_in_one_percent_of_cases(first, second):
    rng = np.random.default_rng(0)
    drawn = torch.tensor(rng.normal(size=(1500, first + second)))
    beyond = [ks_distance(row[:first], row[first:]) > ks_chance(first, second) for row in drawn]
    assert 0.002 < np.mean(beyond) < 0.018
