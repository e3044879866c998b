"""After the build: what a screen reader and a keyboard need, and no asset from elsewhere.

furo's two side columns have no name, code and tables that scroll cannot be reached by keyboard,
and a heading without words is none.
A page that would load a script, style, font or picture from another site fails the build.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # tests read this without the extra `docs`
    from sphinx.application import Sphinx

NAMED = {
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="All pages">',
    '<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
    '<th class="head"><p></p></th>': "<td></td>",
    "<pre>": '<pre tabindex="0">',
}
LOADED = r"<(?:script|img|iframe|source|video)\b[^>]*\bsrc=\"(?:https?:)?//[^\"]*"
LINKED = r"<link\b(?=[^>]*rel=\"(?:stylesheet|preload|icon)[^>]*)[^>]*href=\"(?:https?:)?//[^\"]*"
STYLED = r"(?:@import\s+(?:url\()?|url\()['\"]?(?:https?:)?//[^)'\"]*"


def accessible(page: str) -> str:
    """The page with named landmarks and blocks of code that can be focused."""
    for before, after in NAMED.items():
        page = page.replace(before, after)
    return page


def assets_elsewhere(text: str) -> list[str]:
    """What a page or a style sheet would load from another site."""
    return re.findall(f"{LOADED}|{LINKED}|{STYLED}", text)


def finish(app: Sphinx, exception: Exception | None) -> None:
    """Called once when the site is written."""
    if exception or app.builder.format != "html":
        return
    elsewhere = []
    for file in sorted(Path(app.outdir).rglob("*.html")):
        file.write_text(accessible(file.read_text()))
    for file in sorted(Path(app.outdir).rglob("*")):
        if file.suffix in (".html", ".css"):
            elsewhere += [f"{file}: {asset}" for asset in assets_elsewhere(file.read_text())]
    if elsewhere:
        from sphinx.errors import ExtensionError

        raise ExtensionError("Assets from elsewhere:\n" + "\n".join(elsewhere))


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx when to call it."""
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True}
