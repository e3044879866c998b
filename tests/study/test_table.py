"""What the table says of seeds: noise floor, intervals, and which method is best."""

import pytest

from qunlearn.study.ranking import ranking
from qunlearn.study.table import Entry, noise_floor, table_of


def entry(method, seed, scores, seconds=10.0):
    metrics = dict(zip(("FA", "RA", "TA", "MIA"), scores, strict=True))
    figures = {"metrics": metrics, "seconds": seconds, "settings": {}, "threads": 1, "workers": 1}
    return Entry(method, seed, figures, {}, 0)


def test_the_noise_floor_is_the_gap_among_retrains():
    retrains = [
        entry("retrain", seed, scores)
        for seed, scores in enumerate([(80, 99, 75, 30), (82, 99, 75, 32), (80, 99, 75, 30)])
    ]
    floor = noise_floor(retrains)
    assert floor["AG"][0] == pytest.approx((1 + 0 + 1) / 3)
    assert noise_floor(retrains[:1]) is None


def test_a_single_seed_has_no_interval_and_no_floor(digits):
    table = table_of([entry("retrain", 0, (80, 99, 75, 30))], digits.forget_random(0.1))
    assert table["rows"][0]["FA"] == [80, None]
    assert table["noise_floor"] is None


def ranked(floor, **gaps):
    rows = [{"method": name, "AG": list(gap)} for name, gap in gaps.items()]
    return ranking(rows, floor), {row["method"]: row.get("place") for row in rows}


def test_the_best_is_named_only_where_it_can_be_told():
    words, places = ranked(0.5, a=(9, 1), b=(2, 0.5), c=(5, 1))
    assert words == "Best is b, runner-up c."
    assert places == {"a": None, "b": "best", "c": "runner-up"}
    words, places = ranked(0.5, a=(5.5, 1), b=(2, 0.5), c=(5, 1))
    assert words == "Best is b; which comes second cannot be told: its interval meets that of a."
    assert places == {"a": None, "b": "best", "c": None}
    words, places = ranked(0.5, a=(9, 6.5), b=(2, 0.5), c=(5, 1))
    assert "which is best cannot be told: its interval meets that of a" in words
    assert set(places.values()) == {None}
    words, places = ranked(6, a=(9, 0.1), b=(2, 0.1), c=(5, 0.1))
    assert "b, c are within the noise floor" in words
    assert set(places.values()) == {None}
    words, places = ranked(0, a=(9, None), b=(2, None))
    assert words == "b has the smallest AG, but one seed cannot tell which is best."
    assert set(places.values()) == {None}
    assert ranked(0, a=(9, None)) == ("", {"a": None})
