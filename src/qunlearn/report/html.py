"""HTML from parts: whatever is not marked as HTML already is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from qunlearn.report.style import CSS

VOID = {"meta", "br", "hr"}


class Safe(str):
    """Text that is HTML already."""


def text(value: object) -> Safe:
    """Anything as HTML: escaped, unless it is HTML already; a number stays with its percent sign.

    >>> text("<b>"), text(Safe("<b>"))
    ('&lt;b&gt;', '<b>')
    """
    if isinstance(value, Safe):
        return value
    return Safe(html.escape(str(value)).replace(" %", "\N{NO-BREAK SPACE}%"))


def verbatim(value: str) -> Safe:
    """Text to be copied from the page: escaped, and not changed otherwise."""
    return Safe(html.escape(value))


def join(*children: object) -> Safe:
    """One after another."""
    return Safe("".join(map(text, children)))


def tag(name: str, /, *children: object, **attributes: object) -> Safe:
    """An element; `class_` and `aria_label` stand for `class` and `aria-label`.

    >>> tag("p", "1 < 2", tag("b", "!"), class_="note")
    '<p class="note">1 &lt; 2<b>!</b></p>'
    """
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            spelt = key.rstrip("_").replace("_", "-")
            words.append(f'{spelt}="{html.escape(str(value))}"')
    opened = f"<{' '.join(words)}>"
    return Safe(opened) if name in VOID else Safe(f"{opened}{join(*children)}</{name}>")


def section(title: str, *children: object) -> Safe:
    """A part of the page; nothing at all if there is nothing in it."""
    if not any(children):
        return Safe("")
    return Safe(f"\n{tag('section', tag('h2', title), *children)}\n")


def table(
    head: Sequence[object],
    rows: Iterable[Sequence[object]],
    label: str,
    classes: Sequence[str] = (),
) -> Safe:
    """A table in a box of its own that scrolls sideways; a row's first cell is its name."""
    lines = []
    for i, (first, *others) in enumerate(rows):
        cells = [tag("th", first, scope="row"), *(tag("td", cell) for cell in others)]
        lines.append(tag("tr", *cells, class_=(classes[i] or None) if classes else None))
    top = tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in head))) if head else ""
    whole = tag("table", top, tag("tbody", *lines))
    # A box that scrolls has to be reachable by keyboard, and so needs a name.
    return tag("div", whole, class_="scroll", role="region", aria_label=label, tabindex="0")


def page(title: str, *children: object) -> str:
    """The whole page. Its policy forbids the browser to load anything from anywhere."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    head = join(
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Safe(CSS)),
    )
    body = tag("body", tag("main", *children))
    return f"<!doctype html>\n{tag('html', tag('head', head), body, lang='en')}\n"


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "seed"), counted(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
