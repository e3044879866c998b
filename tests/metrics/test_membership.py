"""The attacks against scikit-learn, definitions written out, and data with known answers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC

from qunlearn.metrics import (
    agreement,
    auc,
    average_gap,
    entropy,
    jensen_shannon,
    lira,
    mean_interval,
    mia_efficacy,
    modified_entropy,
    score,
    tpr_at_fpr,
    true_confidence,
)
from qunlearn.metrics.gap import half_width
from qunlearn.metrics.membership import attack, draw, least_accuracy, vector_efficacy
from qunlearn.metrics.scores import attack_samples, compare
from qunlearn.metrics.svm import kernel_features


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def score_sets() -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Members, non-members and forget samples: lifelike ones, and ones to break a solver."""
    chance = np.random.default_rng(0)
    n = 600

    def normal(mean, spread, count=n):
        return sigmoid(chance.normal(mean, spread, count))

    near_one = lambda low, count: 1 - 10 ** chance.uniform(-8, low, count)  # noqa: E731
    return {
        "lifelike": (normal(5, 1.5), normal(2, 3.5), normal(3, 3)),
        "alike": (normal(3, 2), normal(3, 2), normal(3, 2)),
        "memorised": (
            near_one(-2, n),
            np.concatenate([near_one(-1, 450), chance.random(150)]),
            near_one(-1, n),
        ),
        "separable": (chance.uniform(0.8, 1, n), chance.uniform(0, 0.5, n), chance.random(n)),
        "two heaps": (
            np.concatenate([chance.uniform(0.99, 1, 300), chance.uniform(0, 0.1, 300)]),
            chance.random(n),
            chance.random(n),
        ),
        "three values": tuple(
            chance.choice([0.0, 0.5, 1.0], n, p=p)
            for p in ((0.1, 0.1, 0.8), (0.3, 0.2, 0.5), (0.2, 0.2, 0.6))
        ),
        "two each": (np.array([0.9, 0.8]), np.array([0.2, 0.85]), chance.random(n)),
        "one each": (np.array([0.9]), np.array([0.2]), chance.random(n)),
        "wide": (chance.exponential(0.3, n), chance.exponential(3, n), chance.exponential(2, n)),
        "far apart": (1e4 * chance.random(n), 1e4 * chance.random(n), 1e4 * chance.random(n)),
        "reversed": (normal(0, 1), normal(3, 1), normal(1, 2)),
        "unequal": (normal(4, 1), normal(2, 2, 60), normal(3, 2)),
        **{
            f"within {width:g}": tuple(1 - width * chance.beta(a, 2, n) for a in (1, 2, 1.5))
            for width in (3e-2, 1e-2, 1e-3, 1e-4, 1e-6)
        },
    }


@pytest.mark.parametrize("name", score_sets())
def test_the_fast_attack_is_scikit_learns(name):
    parts = [torch.from_numpy(part) for part in score_sets()[name]]
    assert mia_efficacy(*parts) == pytest.approx(mia_efficacy(*parts, exact=True), abs=0.1)


def test_the_decision_function_is_scikit_learns_to_its_tolerance():
    members, others, forget = score_sets()["lifelike"]
    from qunlearn.metrics import svm

    machine = svm.fit(members, others, 0.0, 1.0)
    x = np.concatenate([members, others])[:, None]
    y = np.repeat([1, 0], [len(members), len(others)])
    theirs = SVC(C=3, gamma="auto", tol=1e-6).fit(x, y).decision_function(forget[:, None])
    assert np.abs(machine.decide(forget) - theirs).max() < 1e-3


@given(st.floats(-3, 3), st.floats(0, 20), st.integers(0, 100))
def test_the_features_inner_products_are_the_kernel(low, width, seed):
    x = np.random.default_rng(seed).uniform(low, low + width, 30)
    features = kernel_features(x, low, low + width)
    kernel = np.exp(-np.square(x[:, None] - x[None]))
    assert np.abs(features @ features.T - kernel).max() < 1e-8


@example([0.375, 0.5, 0.5, 0.625], [0.25, 0.25, 0.375, 0.375, 0.5, 0.75, 0.875])
@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from([k / 8 for k in range(9)]), min_size=3, max_size=30),
    st.lists(st.sampled_from([k / 8 for k in range(9)]), min_size=3, max_size=30),
)
def test_the_decision_is_scikit_learns_where_many_samples_are_equal(members, others):
    grid = np.linspace(0, 1, 33)
    from qunlearn.metrics import svm

    machine = svm.fit(np.array(members), np.array(others), 0.0, 1.0)
    x = np.concatenate([members, others])[:, None]
    y = np.repeat([1, 0], [len(members), len(others)])
    theirs = SVC(C=3, gamma="auto", tol=1e-8).fit(x, y).decision_function
    off = machine.decide(grid) - theirs(grid[:, None])
    assert np.ptp(off) < 1e-2
    # Any bias of an interval may be best. We take its middle, and so does libsvm, unless one of its
    # multipliers is at the bound but for the last bit: then it takes an end.
    hinges = [
        np.maximum(0, 1 - (2 * y - 1) * f).sum() for f in (machine.decide(x[:, 0]), theirs(x))
    ]
    assert np.abs(off).max() < 1e-2 or hinges[0] == pytest.approx(hinges[1], abs=1e-5)


def test_nothing_to_tell_apart_calls_nothing_a_non_member_as_scikit_learn_does():
    ones = torch.ones(20)
    assert mia_efficacy(ones, ones, ones) == mia_efficacy(ones, ones, ones, exact=True) == 0


@pytest.mark.parametrize("bad", [torch.tensor([]), torch.tensor([math.nan]), torch.ones(2, 2)])
def test_scores_that_are_none_are_refused(bad):
    with pytest.raises(ValueError, match="forget_scores"):
        mia_efficacy(torch.ones(2), torch.zeros(2), bad)


def test_a_memoriser_and_a_forgetter_land_where_they_should():
    chance = np.random.default_rng(1)
    member = torch.from_numpy(sigmoid(chance.normal(8, 1, 500)))
    other = torch.from_numpy(sigmoid(chance.normal(0, 1, 500)))
    assert mia_efficacy(member, other, member[:100]) < 2
    assert mia_efficacy(member, other, other[:100]) > 98


def test_modified_entropy_is_its_definition():
    torch.manual_seed(0)
    logits, labels = 3 * torch.randn(40, 5, dtype=torch.float64), torch.randint(0, 5, (40,))
    for z, y, found in zip(logits, labels.tolist(), modified_entropy(logits, labels), strict=True):
        p = [math.exp(v) / sum(math.exp(u) for u in z.tolist()) for v in z.tolist()]
        expected = -(1 - p[y]) * math.log(p[y]) - sum(
            p[k] * math.log(1 - p[k]) for k in range(5) if k != y
        )
        assert found.item() == pytest.approx(expected, rel=1e-9)


def test_modified_entropy_of_certainty():
    sure = torch.tensor([[60.0, 0.0, 0.0], [60.0, 0.0, 0.0]])
    right, wrong = modified_entropy(sure, torch.tensor([0, 1])).tolist()
    assert right == pytest.approx(0, abs=1e-12)
    assert wrong == pytest.approx(60 + 60 - math.log(2), rel=1e-3)


def test_entropy_confidence_divergence_and_agreement():
    uniform, sure = torch.zeros(1, 8), torch.tensor([[100.0, *[0.0] * 7]])
    assert entropy(uniform).item() == pytest.approx(math.log(8))
    assert entropy(sure).item() == pytest.approx(0)
    assert true_confidence(uniform, torch.tensor([3])).item() == pytest.approx(1 / 8)
    assert jensen_shannon(sure, sure).item() == 0
    q, m = [0.5, 0.5], [0.75, 0.25]  # the first logits stand for [1, 0]
    by_hand = 0.5 * (math.log(1 / 0.75)) + 0.5 * sum(
        b * math.log(b / c) for b, c in zip(q, m, strict=True)
    )
    found = jensen_shannon(torch.tensor([[100.0, 0.0]]), torch.zeros(1, 2))
    assert found.item() == pytest.approx(by_hand)
    assert agreement(torch.eye(4), torch.eye(4)) == 100
    assert agreement(torch.eye(4), torch.eye(4).flip(0)) == 0


def test_the_vector_attack_is_scikit_learns_on_probabilities():
    torch.manual_seed(0)
    members, others = 4 * torch.randn(60, 3) + torch.tensor([2.0, 0, 0]), torch.randn(60, 3)
    forget = torch.randn(40, 3)
    x = torch.cat([members, others]).double().softmax(1).numpy()
    svc = SVC(C=3, gamma=1 / 3).fit(x, np.repeat([1, 0], 60))
    expected = 100 * np.mean(svc.predict(forget.double().softmax(1).numpy()) == 0)
    assert vector_efficacy(members, others, forget) == pytest.approx(expected)


def test_attacks_learn_from_equally_many_drawn_by_seed():
    a, b = attack_samples(50, 20, 0)
    assert (len(a), len(b)) == (20, 20)
    assert len(set(a.tolist())) == 20
    assert not torch.equal(a, attack_samples(50, 20, 1)[0])
    assert torch.equal(b, torch.arange(20))
    assert draw(3, 5, np.random.default_rng(0)).tolist() == [0, 1, 2]


def predictions(seed):
    generator = torch.Generator().manual_seed(seed)
    sizes = {"forget": 30, "retain": 80, "test": 50}
    logits = {part: torch.randn(n, 4, generator=generator) for part, n in sizes.items()}
    labels = {part: torch.randint(0, 4, (n,), generator=generator) for part, n in sizes.items()}
    return logits, labels


def test_the_gap_to_retrain_is_by_part_what_the_definitions_say():
    (logits, labels), (others, _) = predictions(0), predictions(1)
    first, second = score(logits, labels), score(others, labels)
    found = compare(first, second, logits, others)
    expected = [abs(first.figures[s] - second.figures[s]) for s in ("FA", "RA", "TA", "MIA")]
    assert all(gap > 0 for gap in expected)
    assert (
        found.AG == average_gap(first.figures, second.figures) == pytest.approx(sum(expected) / 4)
    )
    for part, rows in logits.items():
        p, q = rows.double().softmax(1), others[part].double().softmax(1)
        same = sum(int(a.argmax() == b.argmax()) for a, b in zip(p, q, strict=True))
        assert found.parts[part].agreement == pytest.approx(100 * same / len(rows))
        middle = (p + q) / 2
        apart = (p * (p / middle).log() + q * (q / middle).log()).sum(1) / 2
        assert found.parts[part].divergence == pytest.approx(float(apart.mean()), rel=1e-6)


def test_a_model_that_is_its_own_retrain_has_no_gap():
    """Nor has a second evaluation of it, whose last bits may differ."""
    logits, labels = predictions(0)
    again = {part: rows * (1 + 1e-7 * torch.randn(rows.shape)) for part, rows in logits.items()}
    found = compare(score(logits, labels), score(again, labels), logits, again)
    assert found.AG == 0
    assert set(found.gaps.values()) == {0}
    for part in found.parts.values():
        assert part.agreement == 100
        assert part.divergence == pytest.approx(0, abs=1e-9)


def test_the_four_figures_are_those_of_their_parts():
    logits, labels = predictions(3)
    found = score(logits, labels, exact=True, vector=True)
    for name, part in (("FA", "forget"), ("RA", "retain"), ("TA", "test")):
        right = (logits[part].argmax(1) == labels[part]).float().mean().item()
        assert found.figures[name] == pytest.approx(100 * right)
    rows = attack_samples(80, 50, 0)[0]
    expected = mia_efficacy(
        true_confidence(logits["retain"][rows], labels["retain"][rows]),
        true_confidence(logits["test"], labels["test"]),
        true_confidence(logits["forget"], labels["forget"]),
        exact=True,
    )
    assert found.MIA == found.attacks["confidence"] == expected
    assert set(found.attacks) == {
        "confidence", "correctness", "entropy", "modified entropy", "vector",
    }  # fmt: skip


@given(
    st.lists(st.integers(-5, 5), min_size=1, max_size=20),
    st.lists(st.integers(-5, 5), min_size=1, max_size=20),
)
def test_auc_is_scikit_learns(positive, negative):
    y = [1] * len(positive) + [0] * len(negative)
    expected = roc_auc_score(y, positive + negative)
    assert auc(torch.tensor(positive), torch.tensor(negative)) == pytest.approx(expected)


def test_tpr_at_fpr_counts():
    negative = torch.arange(1000.0)
    assert tpr_at_fpr(torch.tensor([990.0, 988.0, 2000.0]), negative, 0.01) == pytest.approx(2 / 3)
    assert tpr_at_fpr(torch.tensor([5.0]), torch.tensor([5.0]), 0.01) == 0


@pytest.mark.parametrize("references", [2, 5])
def test_liras_null_is_uniform(references):
    """A model like the references: its p-values are uniform, and it cannot be told apart."""
    generator = torch.Generator().manual_seed(0)
    own = 2 * torch.randn(4000, generator=generator)  # how hard each sample is
    models = own + 1.5 * torch.randn(references + 2, 4000, generator=generator)
    first, second = (lira(models[i], models[2:]) for i in (0, 1))
    p = torch.special.ndtr(first).sort().values
    uniform = (torch.arange(4000) + 0.5) / 4000
    assert (p - uniform).abs().max() < 1.7 / math.sqrt(4000)  # Kolmogorov-Smirnov at 1 %
    assert auc(first, second) == pytest.approx(0.5, abs=0.02)
    assert tpr_at_fpr(first, second) == pytest.approx(0.01, abs=0.006)


def test_lira_finds_a_model_that_still_knows():
    generator = torch.Generator().manual_seed(0)
    models = torch.randn(5, 500, generator=generator)
    known = models[0] + 5
    null = lira(models[1], models[2:])
    assert auc(lira(known, models[2:]), null) > 0.99
    with pytest.raises(ValueError, match="two models"):
        lira(known, models[:1])
    with pytest.raises(ValueError, match="identical"):
        lira(known, models[:1].repeat(2, 1))


def test_mean_and_interval_are_scipys():
    from scipy import stats

    values = [1.0, 4.0, 2.5, 3.0]
    mean, half = mean_interval(values)
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (mean - half, mean + half) == pytest.approx((low, high))
    assert math.isnan(mean_interval([1.0])[1])


@pytest.mark.parametrize("exact", [False, True])
def test_an_attack_says_how_often_it_is_right(exact):
    # A fifth of the others look like members: nobody can be right on more than nine tenths.
    member = torch.full((100,), 0.9)
    other = torch.where(torch.arange(100) < 20, 0.9, 0.1)
    assert attack(member, other, other, exact=exact) == (80.0, 90.0)
    assert attack(member, member, other, exact=exact).accuracy == 50.0


@pytest.mark.parametrize("samples", [10, 30, 100, 300])
def test_an_attack_with_nothing_to_learn_seldom_passes_for_one_that_did(samples):
    """55 % alone would be passed by four in five of such attacks on 10 samples."""
    chance = np.random.default_rng(samples)

    def accuracy(shift):
        scores = (sigmoid(chance.normal(mean, 3, samples)) for mean in (4, 4 - shift, 4))
        return attack(*map(torch.from_numpy, scores)).accuracy

    least = least_accuracy(samples)
    assert sum(accuracy(0) >= least for _ in range(200)) <= 10  # 5 %
    assert all(accuracy(12) >= least for _ in range(20))


@given(st.integers(1, 3000), st.floats(0, 1))
def test_the_reach_of_chance_is_the_farther_end_of_wilsons_interval(samples, share):
    right = round(share * samples)
    p, z = right / samples, 1.959964
    # Wilson (1927): the shares q for which |p - q| is z standard deviations √(q (1 - q) / n).
    middle = (p + z**2 / (2 * samples)) / (1 + z**2 / samples)
    root = math.sqrt(p * (1 - p) / samples + z**2 / (4 * samples**2))
    ends = [middle + sign * z * root / (1 + z**2 / samples) for sign in (-1, 1)]
    expected = 100 * max(abs(end - p) for end in ends)
    assert half_width(100 * p, samples) == pytest.approx(expected, abs=1e-3)
