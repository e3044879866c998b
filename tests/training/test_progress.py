"""Progress where nobody watches: a line a minute at most, and none for short work."""

import io
import re
import sys
from datetime import UTC, datetime

import pytest

from qunlearn.training import progress


class Clock:
    """Seconds that pass when the test says so."""

    now = 1000.0

    def monotonic(self):
        return self.now

    def time(self):
        return 1_700_000_000 + self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.setattr(progress.Lines, "_printed", 0.0)
    return clock


def lines(capsys):
    output = capsys.readouterr()
    assert output.out == ""
    return output.err.splitlines()


def test_a_line_a_minute_says_how_far_and_when_it_will_end(clock, capsys):
    with progress.Progress("training cnn", 1000) as shown:
        shown.advance(100)  # resumed: these took no time here
        for _ in range(300):
            clock.now += 1
            shown.advance()
    found = lines(capsys)
    assert len(found) == 5
    assert found[0].startswith("training cnn: 160 of 1,000, expected to end at ")
    end = datetime.strptime(found[0][-20:], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert end.timestamp() == 1_700_000_000 + 1000 + 900


def test_of_what_is_done_no_end_is_expected(clock, capsys):
    with progress.Progress("retraining", 2) as shown:
        for _ in range(2):
            clock.now += 40
            shown.advance()
    assert lines(capsys) == ["retraining: 2 of 2"]


def test_short_work_prints_nothing_however_often(clock, capsys):
    for _ in range(3):
        with progress.Progress("measuring", 59) as shown:
            for _ in range(59):
                clock.now += 1
                shown.advance()
    assert lines(capsys) == []


def test_work_within_work_shares_the_minute(clock, capsys):
    with progress.Progress("cells", 4) as outer:
        for _ in range(4):
            with progress.Progress("training", 100) as inner:
                for _ in range(100):
                    clock.now += 1
                    inner.advance()
            outer.advance()
    assert len(lines(capsys)) <= 400 // 60


def test_a_download_of_unknown_size_has_no_expected_end(clock, capsys):
    with progress.downloading() as show:
        show(0, None)
        clock.now += 61
        show(5000, None)
    assert lines(capsys) == ["downloading, in bytes: 5,000"]


def test_a_terminal_gets_a_bar_and_no_lines(clock, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.Progress("training", 10) as shown:
        clock.now += 61
        shown.advance()
    assert not re.search("expected to end|1 of 10", terminal.getvalue())


def test_a_process_that_is_not_the_first_prints_nothing(clock, capsys):
    with progress.Progress("training", 10, shown=False) as shown:
        clock.now += 61
        shown.advance()
    assert lines(capsys) == []
