"""Figures are drawn as matplotlib is shipped, whatever lies in the working folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qunlearn.report.drawing import draw

CODE = """
import sys
from qunlearn.report.drawing import draw
drawn = draw("a", "b", "c", (2, 1), lambda figure: figure.text(0.5, 0.5, "word"))
sys.stdout.buffer.write(drawn.png + drawn.svg.encode())
"""


def drawn_in(folder: Path) -> bytes:
    done = subprocess.run([sys.executable, "-c", CODE], cwd=folder, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def test_an_rc_file_is_not_obeyed_nor_read(tmp_path: Path) -> None:
    empty, planted, waiting = (tmp_path / name for name in ("empty", "planted", "waiting"))
    for folder in (empty, planted, waiting):
        folder.mkdir()
    rules = "text.usetex: True\nfont.size: 40\nlines.color: red\nsavefig.dpi: 7\nno.such: 1\n"
    (planted / "matplotlibrc").write_text(rules)
    os.mkfifo(waiting / "matplotlibrc")  # reading it would wait for ever
    plain = drawn_in(empty)
    assert plain.startswith(b"\x89PNG")
    assert drawn_in(planted) == plain
    assert drawn_in(waiting) == plain


def test_neither_are_settings_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib

    def once() -> bytes:
        return draw("a", "b", "c", (2, 1), lambda figure: figure.text(0.5, 0.5, "word")).png

    plain = once()
    with matplotlib.rc_context({"text.usetex": True, "figure.autolayout": True, "font.size": 40}):
        assert once() == plain
        assert matplotlib.rcParams["text.usetex"]
