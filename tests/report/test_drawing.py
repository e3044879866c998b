"""Figures are drawn as matplotlib is shipped, whatever lies in the working folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qunlearn.report.drawing import draw

CODE = """
import os, pathlib, sys
from qunlearn.report.drawing import draw
assert "matplotlib" not in sys.modules
for folder in sys.argv[1:]:
    if not os.fork():
        os.chdir(folder)
        drawn = draw("a", "b", "c", (2, 1), lambda figure: figure.text(0.5, 0.5, "word"))
        pathlib.Path("drawn").write_bytes(drawn.png + drawn.svg.encode())
        os._exit(0)
    assert os.wait()[1] == 0
"""


def drawn_in(*folders: Path) -> list[bytes]:
    """What processes draw that load matplotlib in these folders."""
    command = [sys.executable, "-c", CODE, *folders]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    return [(folder / "drawn").read_bytes() for folder in folders]


def test_an_rc_file_is_not_obeyed_nor_read(tmp_path: Path) -> None:
    empty, planted, waiting = (tmp_path / name for name in ("empty", "planted", "waiting"))
    for folder in (empty, planted, waiting):
        folder.mkdir()
    rules = "text.usetex: True\nfont.size: 40\nlines.color: red\nsavefig.dpi: 7\nno.such: 1\n"
    (planted / "matplotlibrc").write_text(rules)
    os.mkfifo(waiting / "matplotlibrc")  # reading it would wait for ever
    plain, *others = drawn_in(empty, planted, waiting)
    assert plain.startswith(b"\x89PNG")
    assert others == [plain, plain]


def test_neither_are_settings_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib

    def once() -> bytes:
        return draw("a", "b", "c", (2, 1), lambda figure: figure.text(0.5, 0.5, "word")).png

    plain = once()
    with matplotlib.rc_context({"text.usetex": True, "figure.autolayout": True, "font.size": 40}):
        assert once() == plain
        assert matplotlib.rcParams["text.usetex"]
