"""What comes from somebody else's file does not command the terminal it is printed on."""

from __future__ import annotations

import io
import json
import shutil
import sys
import warnings

import pytest
from sealed import seal

from qunlearn.characters import UNSAFE
from qunlearn.cli import main
from qunlearn.cli.output import print_json, print_scores, print_table, say, say_error
from qunlearn.errors import UserError
from qunlearn.metrics import PartScores
from qunlearn.runs.metrics import RunMetrics

HOSTILE = "a\x1b]0;owned\x07\x1b[2J\x9b31m\u202eb\u2066\r"


def test_everything_that_prints_is_plain(capsys):
    say(HOSTILE)
    say_error(f"one {HOSTILE}\nqunlearn: two")
    print_table([HOSTILE, "b"], [[HOSTILE, f"{HOSTILE}\nc"]], HOSTILE)
    output = capsys.readouterr()
    assert not UNSAFE.search(output.out + output.err)
    assert "[2J" in output.out  # the rest is shown
    assert len(output.err.splitlines()) == 1


def test_json_has_it_escaped_and_intact(capsys):
    print_json({HOSTILE: [HOSTILE, "é\ud800"]})
    out = capsys.readouterr().out
    assert not UNSAFE.search(out)
    assert "é" in out
    assert json.loads(out) == {HOSTILE: [HOSTILE, "é\ud800"]}


def test_a_terminal_without_these_letters_is_no_error(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    say("α × é")
    stream.flush()
    assert stream.buffer.getvalue() == b"\\u03b1 \\xd7 \\xe9\n"


@pytest.mark.parametrize(
    "fails",
    [
        lambda: warnings.warn(HOSTILE, stacklevel=1),
        lambda: (_ for _ in ()).throw(UserError(HOSTILE)),
        lambda: (_ for _ in ()).throw(OSError(2, HOSTILE, HOSTILE)),
    ],
)
def test_warnings_and_errors_are_plain(fails, monkeypatch, capsys, qunlearn):
    """Warnings are formatted as a process would print them, which pytest does not."""
    shown = []

    def command(words):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda *a: shown.append(warnings.formatwarning(*a[:4]))
            fails()

    monkeypatch.setattr(main, "application", lambda _: lambda words, **__: command(words))
    _, out, err = qunlearn("methods")
    text = "".join(shown) + out + err
    assert "[2J" in text
    assert not UNSAFE.search(text)


def test_a_bug_of_ours_is_a_plain_traceback_and_an_invitation(qunlearn, monkeypatch, tmp_path):
    def broken(*_, **__):
        raise TypeError(HOSTILE)

    monkeypatch.setattr("qunlearn.study.check.check_run", broken)
    code, out, err = qunlearn("check", tmp_path)
    assert (code, out) == (1, "")
    assert "TypeError" in err
    assert "This is a bug in qunlearn" in err
    assert not UNSAFE.search(err)


def test_a_received_run(qunlearn, run_folder, tmp_path):
    """Its figures, its info and its classes, in every command that prints them."""
    path = tmp_path / "run"
    shutil.copytree(run_folder, path)
    escaped = json.dumps(HOSTILE)[1:-1]
    metrics = json.loads((path / "metrics.json").read_text())
    metrics["parts"][HOSTILE] = metrics["parts"]["train"]
    metrics["duplicates"] = {"copies": {HOSTILE: HOSTILE}}
    (path / "metrics.json").write_text(json.dumps(metrics))
    info = (path / "run.json").read_text().replace('"system": "', f'"system": "{escaped}')
    (path / "run.json").write_text(info)
    seal(path)
    for words in (("train", "--resume", "--out", path), ("check", path), ("explain", path)):
        for more in ((), ("--json",)):
            _, out, err = qunlearn(*words, *more)
            assert not UNSAFE.search(out + err), words


@pytest.mark.parametrize(
    ("accuracy", "samples", "weak"),
    [(56.0, 5000, False), (54.0, 5000, True), (66.0, 30, True), (68.0, 30, False)],
)
def test_an_attack_that_may_be_guessing_is_called_so(accuracy, samples, weak, capsys):
    sizes = {"forget": 100, "retain": 9000, "test": samples}
    parts = {part: PartScores(50.0, size, 0.5, 0.5) for part, size in sizes.items()}
    print_scores(RunMetrics(parts, {"confidence": 50.0}, accuracy))
    assert (f"its accuracy is {accuracy:.1f} %" in capsys.readouterr().out) == weak
