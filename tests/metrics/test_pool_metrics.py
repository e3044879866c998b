"""RMIA, KLoM, ε and likelihood ratios against slow, obvious versions and closed forms."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import norm

from qunlearn.metrics import auc
from qunlearn.metrics.epsilon import challenge_score, chance_epsilon, epsilon, largest_epsilon
from qunlearn.metrics.klom import gaussian_klom, klom, moments
from qunlearn.metrics.likelihood import likelihood_ratio
from qunlearn.metrics.rmia import offline_ratio, rmia

FEW = settings(max_examples=60, deadline=None)
tied = st.integers(-3, 3).map(float)  # ties are what a fast version gets wrong


def table(rows, columns, elements=tied):
    return arrays(np.float64, (rows, columns), elements=elements).map(torch.from_numpy)


@FEW
@given(st.lists(tied, min_size=1), st.lists(tied, min_size=1), st.floats(0.5, 4))
def test_rmia_counts_pairs(samples, population, gamma):
    slow = [sum(x >= gamma * z for z in population) / len(population) for x in samples]
    fast = rmia(torch.tensor(samples).double(), torch.tensor(population).double(), gamma)
    assert fast.tolist() == pytest.approx(slow)


def test_rmia_divides_by_what_references_expect():
    ratio = offline_ratio(torch.tensor([0.6]), torch.tensor([[0.2], [torch.nan], [0.4]]), a=0.3)
    assert ratio.item() == pytest.approx(0.6 / (0.5 * (1.3 * 0.3 + 0.7)))


@FEW
@given(table(4, 2), table(5, 2))
def test_klom_counts_bins(unlearned, retrained):
    values = klom(unlearned, retrained, bins=4, floor=1e-3)
    for column, value in enumerate(values.tolist()):
        groups = [group[:, column].tolist() for group in (unlearned, retrained)]
        low, high = min(groups[0] + groups[1]), max(groups[0] + groups[1])
        shares = []
        for group in groups:
            places = [min(3, int(4 * (x - low) / (high - low))) if high > low else 0 for x in group]
            counted = [max(places.count(k) / len(group), 1e-3) for k in range(4)]
            shares.append([c / sum(counted) for c in counted])
        slow = sum(p * math.log(p / q) for p, q in zip(*shares, strict=True))
        assert value == pytest.approx(slow, abs=1e-9)


def test_gaussian_klom_is_the_closed_form():
    chance = torch.Generator().manual_seed(0)
    draw = torch.randn(3000, 40, generator=chance, dtype=torch.float64)
    wide = 1 + 2 * torch.randn(3000, 40, generator=chance, dtype=torch.float64)
    assert gaussian_klom(wide, draw) == pytest.approx(math.log(1 / 2) + 5 / 2 - 0.5, abs=0.05)
    few = [
        gaussian_klom(*torch.randn(2, 3, 200, generator=chance, dtype=torch.float64))
        for _ in range(50)
    ]
    assert abs(sum(few) / 50) < 0.01  # no bias with three networks each


def slow_epsilon(unlearned, retrained, delta):
    """Every single and double threshold, in both directions, one after the other."""
    values = sorted({*unlearned, *retrained})
    cuts = [-math.inf, *((a + b) / 2 for a, b in itertools.pairwise(values)), math.inf]
    best = 0.0
    for low, high in itertools.combinations(cuts, 2):
        for inside in (True, False):
            called = lambda x: (low < x < high) == inside  # noqa: E731, B023
            fnr = sum(not called(x) for x in unlearned) / len(unlearned)
            fpr = sum(called(x) for x in retrained) / len(retrained)
            if fnr == 0 and fpr == 0:
                return math.inf
            if fnr == 0 or fpr == 0 or fnr >= 1 - delta or fpr >= 1 - delta:
                continue
            bounds = (
                math.log((1 - delta - fpr) / fnr),
                math.log((1 - delta - fnr) / fpr),
            )
            best = max(best, *bounds)
    return best


@FEW
@given(table(4, 2), table(3, 2), st.sampled_from([0.0, 1e-5, 0.1]))
def test_epsilon_tries_every_attack(unlearned, retrained, delta):
    slow = [
        slow_epsilon(u.tolist(), r.tolist(), delta)
        for u, r in zip(unlearned.T, retrained.T, strict=True)
    ]
    assert epsilon(unlearned, retrained, delta).tolist() == pytest.approx(slow)


@pytest.mark.parametrize(("unlearned", "retrained"), [(2, 2), (3, 5), (6, 4)])
def test_no_more_than_the_largest_epsilon_is_finite(unlearned, retrained):
    values = chance_epsilon(unlearned, retrained, draws=3000)
    finite = values[values.isfinite()]
    assert finite.max().item() == pytest.approx(largest_epsilon(unlearned, retrained))


def test_the_challenge_score_halves_with_each_bin():
    assert challenge_score(torch.tensor([0.2, 0.7, 1.2])) == pytest.approx((1 + 0.5 + 0.25) / 3)


def test_moments_leave_out_what_is_missing():
    values = torch.tensor([[1.0, 4.0], [2.0, torch.nan], [6.0, 8.0]]).double()
    mean, variance, count = moments(values)
    assert mean.tolist() == [3.0, 6.0]
    assert count.tolist() == [3, 2]
    assert variance == pytest.approx(((4 + 1 + 9) + (4 + 4)) / (2 + 1))


GAP, SAMPLES = 1.2, 40_000


def gaussian(networks, gap=0.0, seed=0):
    """Margins of networks on samples of different difficulty, one of which is audited."""
    chance = torch.Generator().manual_seed(seed)
    hard = 3 * torch.randn(SAMPLES, generator=chance, dtype=torch.float64)
    noise = torch.randn(networks + 2, SAMPLES, generator=chance, dtype=torch.float64)
    return hard + noise[0] + gap, hard + noise[1], hard + noise[2:]


@pytest.mark.parametrize("networks", [2, 16])
def test_the_likelihood_ratio_reaches_the_closed_form(networks):
    """Against many networks that unlearned, it is a test of two Gaussians of known mean.

    With m references of each kind, v - (mean of both means) has variance 1 + 1/2m, and the sign of
    the difference of means is nearly always right at this gap.
    """
    member, other, references = gaussian(2 * networks, GAP)
    seen, unseen = references[:networks] + GAP, references[networks:]
    reached = auc(likelihood_ratio(member, seen, unseen), likelihood_ratio(other, seen, unseen))
    closed = norm.cdf(GAP / math.sqrt(2))
    assert reached < closed + 0.01
    if networks == 16:
        assert reached == pytest.approx(norm.cdf(GAP / math.sqrt(2 + 2 / 32)), abs=0.015)


def test_rmia_reaches_the_closed_form():
    """Ratios are log-normal around their reference: a score's AUC is that of two Gaussians."""
    chance = torch.Generator().manual_seed(5)
    hard = torch.rand(SAMPLES, generator=chance, dtype=torch.float64) * 1e-6
    one, two = torch.randn(2, SAMPLES, generator=chance, dtype=torch.float64).exp()
    population = torch.randn(20_000, generator=chance, dtype=torch.float64).exp()
    members = offline_ratio(hard * one * math.exp(GAP), hard[None], a=1.0)
    others = offline_ratio(hard * two, hard[None], a=1.0)
    reached = auc(rmia(members, population), rmia(others, population))
    assert reached == pytest.approx(norm.cdf(GAP / math.sqrt(2)), abs=0.01)
