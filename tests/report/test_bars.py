"""Bars for methods with long names."""

import warnings

import pytest

from qunlearn.report.bars import gap_bars, runtime_bars

VARIANTS = ["oeu", "oeu[forget_loss=random-label]", "oeu[granularity=global]"]


@pytest.mark.parametrize("floor", [None, 0.5])
def test_variants_leave_room_for_their_bars(floor):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib's only sign that no room was left
        gaps = {name: dict.fromkeys(("FA", "RA", "TA", "MIA"), 2.0) for name in VARIANTS}
        drawn = [gap_bars(gaps, floor), runtime_bars(dict.fromkeys(VARIANTS, 15.0))]
    assert all("[granularity=global]" in figure.svg for figure in drawn)
