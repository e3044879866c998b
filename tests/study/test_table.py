"""What the table says of seeds: noise floor, intervals, and which method is best."""

from types import SimpleNamespace

import pytest

from qunlearn.metrics import PartScores
from qunlearn.report.rows import ranking_words
from qunlearn.runs.metrics import RunMetrics
from qunlearn.study.ranking import ranking
from qunlearn.study.rows import noise_floor, rows_of
from qunlearn.study.table import CellResult, NoiseFloor


def result(seed, fa, ra, ta, mia):
    accuracies = {"forget": fa, "retain": ra, "test": ta}
    parts = {part: PartScores(right, 100, 0.5, 0.9) for part, right in accuracies.items()}
    return CellResult(seed, f"seed{seed}", RunMetrics(parts, {"confidence": mia}), 10.0, {}, 1)


def test_the_noise_floor_is_the_gap_among_retrains():
    figures = [(80, 99, 75, 30), (82, 99, 75, 32), (80, 99, 75, 30)]
    retrains = [result(seed, *each) for seed, each in enumerate(figures)]
    assert noise_floor(retrains).AG[0] == pytest.approx((1 + 0 + 1) / 3)
    assert noise_floor(retrains[:1]) is None


def test_a_single_seed_has_no_interval(digits):
    results = {"retrain": [result(0, 80, 99, 75, 30)]}
    (row,) = rows_of(results, {"retrain": [{}]}, {}, digits.forget_random(0.1))
    assert row.FA == (80, None)


def ranked(floor, **gaps):
    rows = [SimpleNamespace(method=name, AG=gap) for name, gap in gaps.items()]
    return ranking(rows, NoiseFloor((floor, None), 3))


@pytest.mark.parametrize(
    ("floor", "gaps", "words", "places"),
    [
        (
            0.5,
            {"a": (9, 1), "b": (2, 0.5), "c": (5, 1)},
            "Best is b, runner-up c.",
            [None, "best", "runner-up"],
        ),
        (
            0.5,
            {"a": (5.5, 1), "b": (2, 0.5), "c": (5, 1)},
            "Best is b; which is second is open: its interval overlaps a.",
            [None, "best", None],
        ),
        (
            0.5,
            {"a": (9, 6.5), "b": (2, 0.5), "c": (5, 1)},
            "b has the smallest AG; which is best is open: its interval overlaps a.",
            [None, None, None],
        ),
        (
            6,
            {"a": (9, 0.1), "b": (2, 0.1), "c": (5, 0.1)},
            "b has the smallest AG; which is best is open: b, c are within the noise floor.",
            [None, None, None],
        ),
        (
            0,
            {"a": (9, None), "b": (2, None)},
            "b has the smallest AG; one seed cannot tell which is best.",
            [None, None],
        ),
    ],
)
def test_the_best_is_named_only_where_it_can_be_told(floor, gaps, words, places):
    found = ranked(floor, **gaps)
    assert ranking_words(found) == words
    assert [found.place(name) for name in gaps] == places


def test_a_single_method_has_no_rank():
    assert ranked(0, a=(9, None)) is None
