"""Bootstrap intervals against closed forms."""

import math

import pytest
import torch
from scipy.stats import binomtest, norm

from qunlearn.metrics import auc
from qunlearn.metrics.bootstrap import Interval, bootstrap_interval
from qunlearn.metrics.delong import auc_difference_interval, auc_interval


def mean(values):
    return float(values.mean())


def test_the_interval_of_a_mean_is_the_closed_form():
    values = torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for level in (0.05, 0.2):
        interval = bootstrap_interval(mean, values, level=level)
        half = norm.ppf(1 - level / 2) * float(values.std(correction=0)) / math.sqrt(400)
        assert interval.low == pytest.approx(mean(values) - half, abs=0.1 * half)
        assert interval.high == pytest.approx(mean(values) + half, abs=0.1 * half)


def test_it_covers_the_true_auc_as_often_as_it_says():
    true = norm.cdf(1 / math.sqrt(2))  # of two normals one apart
    source = torch.Generator().manual_seed(1)
    hits = 0
    for seed in range(60):
        positive, negative = torch.randn(2, 80, generator=source)
        interval = bootstrap_interval(auc, positive + 1, negative, draws=200, seed=seed)
        hits += interval.contains(true)
    assert binomtest(hits, 60, 0.95).pvalue > 0.001


def test_columns_of_a_row_stay_together():
    first = torch.arange(50.0)
    both = torch.stack([first, first + 3], 1)
    assert bootstrap_interval(lambda x: mean(x[:, 1] - x[:, 0]), both) == Interval(3.0, 3.0)


def test_delong_agrees_with_the_bootstrap():
    source = torch.Generator().manual_seed(2)
    positive, negative = torch.randn(2, 150, 2, generator=source)
    positive = positive + torch.tensor([1.0, 0.5]) + torch.randn(150, 1, generator=source)
    columns = [(positive[:, i].contiguous(), negative[:, i].contiguous()) for i in (0, 1)]

    def difference(first, second):
        pairs = [(first[:, i].contiguous(), second[:, i].contiguous()) for i in (0, 1)]
        return auc(*pairs[0]) - auc(*pairs[1])

    for closed, resampled in (
        (auc_interval(*columns[0]), bootstrap_interval(auc, *columns[0], draws=400)),
        (
            auc_difference_interval(positive, negative),
            bootstrap_interval(difference, positive, negative, draws=400),
        ),
    ):
        width = closed.high - closed.low
        assert closed.low == pytest.approx(resampled.low, abs=0.12 * width)
        assert closed.high == pytest.approx(resampled.high, abs=0.12 * width)


def test_what_has_no_interval_is_refused():
    with pytest.raises(ValueError, match="empty"):
        bootstrap_interval(mean, torch.zeros(0))
    with pytest.raises(ValueError, match="between 0 and 1"):
        bootstrap_interval(mean, torch.zeros(3), level=1.0)
