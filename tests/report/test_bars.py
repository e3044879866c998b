"""Bars are as long as what they stand for, and names of any length leave room for them."""

import re

import pytest

from qunlearn.metrics.gap import SCORES
from qunlearn.report.bars import COLOURS, KNOWN, gap_bars, runtime_bars

VARIANTS = ["oeu", "oeu[forget_loss=random-label]", "oeu[granularity=global]"]
WIDTH = 288  # points: four inches


def bars(svg, colour):
    """Where the bars of a colour begin and end, from left to right, by ascending row."""
    paths = re.findall(rf'<path d="([^"]*)"\s*clip-path="[^"]*"\s*style="fill: {colour}', svg)
    points = [[tuple(map(float, p.split())) for p in re.findall(r"[ML] (.*)", d)] for d in paths]
    return [(min(x for x, _ in each), max(x for x, _ in each)) for each in points]


@pytest.mark.parametrize("floor", [None, 0.5])
def test_gaps_stand_end_to_end_each_as_long_as_its_value(floor):
    values = {"oeu": (1.0, 2.0, 0.5, 3.0), VARIANTS[1]: (2.0, 1.0, 4.0, 1.0)}
    values |= {VARIANTS[2]: (4.0, 3.0, 0.25, 2.0)}  # in the order of their sums
    gaps = {name: dict(zip(SCORES, row, strict=True)) for name, row in reversed(values.items())}
    svg = gap_bars(gaps, floor).svg
    drawn = {score: bars(svg, COLOURS[score]) for score in SCORES}
    left, longest = drawn["FA"][0][0], drawn["MIA"][2][1]
    point = (longest - left) / sum(values[VARIANTS[2]])
    for row, name in enumerate(values):
        end = left
        for score in SCORES:
            start, stop = drawn[score][row]
            assert start == pytest.approx(end, abs=0.01)
            assert stop - start == pytest.approx(gaps[name][score] * point, abs=0.01)
            end = stop
    assert 0 < left < longest < WIDTH
    assert longest - left > WIDTH / 2  # room is left beside the names


def test_times_are_as_long_as_their_share_of_retrains():
    shares = {VARIANTS[2]: 45.0, VARIANTS[0]: 15.0, VARIANTS[1]: 30.0}
    drawn = bars(runtime_bars(shares).svg, KNOWN)
    assert len({start for start, _ in drawn}) == 1
    lengths = [stop - start for start, stop in drawn]
    assert lengths == pytest.approx([k * lengths[0] for k in (1, 2, 3)], abs=0.01)
    assert 100 / 15 * lengths[0] > WIDTH / 2  # which is where Retrain's line is
