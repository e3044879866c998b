"""A figure as SVG to stand in the page, and as SVG and PNG to stand beside it."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

INK, SOFT, LINE, PAPER = "#1b2733", "#566370", "#d5dbe1", "#ffffff"
FORGET, KNOWN, ON_BAR = "#c65300", "#0072b2", "#fefefe"
THEME = {
    INK: "--ink",
    SOFT: "--soft",
    LINE: "--line",
    PAPER: "--card",
    FORGET: "--forget",
    KNOWN: "--known",
    ON_BAR: "--on-bar",
}
"""Colours that follow the page's, which has a dark side."""
OTHERS = ("#56b4e9", "#e69f00", "#009e73")
"""With those above, colours that also people with colour blindness can tell (Okabe and Ito)."""

STYLE: Any = {
    "font.size": 8.5,
    "text.color": INK,
    "text.parse_math": False,  # a name with dollar signs is a name
    "axes.edgecolor": LINE,
    "axes.labelcolor": SOFT,
    "axes.facecolor": PAPER,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.facecolor": PAPER,
    "figure.constrained_layout.use": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "qunlearn",
}


@dataclass(frozen=True)
class Drawn:
    """A figure: its name, what it shows in words, and what it looks like."""

    name: str
    title: str
    alt: str
    svg: str
    png: bytes

    @property
    def inside(self) -> Markup:
        """What stands in the page between `<svg` and `</svg>`."""
        return Markup(inline(self.svg, self.name).removeprefix("<svg").removesuffix("</svg>"))


def draw(
    name: str, title: str, alt: str, size: tuple[float, float], paint: Callable[[Any], None]
) -> Drawn:
    """Draw a figure of so many inches; the same figure gives the same bytes."""
    import warnings

    matplotlib = matplotlib_as_shipped()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        # A letter that the PNG's font lacks becomes a box there, which is no reason to complain.
        warnings.filterwarnings("ignore", message="Glyph")
        figure = Figure(figsize=size)
        FigureCanvasAgg(figure)
        paint(figure)
        vector, pixels = io.StringIO(), io.BytesIO()
        figure.savefig(vector, format="svg", metadata={"Date": None, "Creator": None})
        figure.set_layout_engine("none")  # it is laid out by now, which takes a third of the time
        figure.savefig(pixels, format="png", dpi=200, metadata={"Software": None})
    return Drawn(name, title, alt, vector.getvalue(), pixels.getvalue())


def matplotlib_as_shipped() -> Any:
    """Matplotlib with its own defaults: a `matplotlibrc` in the working folder is not even read.

    It could have figures drawn by programs such as latex. matplotlib looks for the file when it is
    imported, first of all in the working folder, so for that moment this is the folder of its own.
    """
    if "matplotlib" not in sys.modules:
        spec = importlib.util.find_spec("matplotlib")
        assert spec is not None
        assert spec.origin is not None
        here = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))
        try:
            os.chdir(Path(spec.origin).parent / "mpl-data")
            importlib.import_module("matplotlib")
        finally:
            os.fchdir(here)
            os.close(here)
    return importlib.import_module("matplotlib")


def inline(svg: str, name: str) -> str:
    """An SVG file as a part of a page: no header, ids of its own, the page's colours and font.

    >>> inline('<?xml version="1.0"?><svg><g id="a"/><use xlink:href="#a"/></svg>', "x")
    '<svg><g id="x-a"/><use href="#x-a"/></svg>'
    """
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg, flags=re.DOTALL)
    head, rest = svg.split(">", 1)
    # Its own size gives way to that of the page; only the proportions in viewBox stay.
    head = re.sub(r'\s(xmlns(:xlink)?|width|height|version)="[^"]*"', "", head)
    svg = f"{head}>{rest}".replace("xlink:href", "href")
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"(\d+(?:\.\d+)?px) [^;\"]*?sans-serif", r"\1 system-ui, sans-serif", svg)
    for colour, variable in THEME.items():
        svg = svg.replace(f": {colour}", f": var({variable})")
    return svg


def slug(name: str) -> str:
    """A name that can stand in a file's name and in an id; different names stay different.

    >>> slug("l1-sparse"), slug("my.pkg:<b>x")
    ('l1-sparse', 'my.pkg-b-x-859c31de')
    """
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.")
    return plain if plain == name else f"{plain}-{zlib.crc32(name.encode()):08x}"
