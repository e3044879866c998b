"""Files of the repository as pages of the site, and links between both.

Pages are read on the site and in the repository. `../../CHANGELOG.md` is right in the repository;
in the site the same text is the page `project/changelog`. Links are rewritten as pages are read.
"""

from __future__ import annotations

import re
from os.path import normpath, relpath
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # tests read this without the extra `docs`
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]

PAGES = {
    "README.md": "docs/index.md",
    "CHANGELOG.md": "docs/project/changelog.md",
    "CONTRIBUTING.md": "docs/project/contributing.md",
    "SECURITY.md": "docs/project/security.md",
    "UPGRADING.md": "docs/project/upgrading.md",
    "benchmarks/README.md": "docs/project/benchmarks.md",
    "examples/README.rst": "docs/gallery/index.rst",
}
"""Files of the repository, and the page of the site that shows each."""

SHOWN_BY = {page: file for file, page in PAGES.items() if page.startswith("docs/project/")}


def to_site(text: str, file: str, page: str) -> str:
    """The text of `file` with links that hold on `page`; both are paths in the repository."""

    def link(match: re.Match[str]) -> str:
        target = normpath(Path(file).parent / match[1])
        target = PAGES.get(target, target)
        return f"]({relpath(target, Path(page).parent)}{match[2] or ''})"

    return re.sub(r"\]\(([\w/.-]+\.(?:md|rst|svg|png))(#[^)]*)?\)", link, text)


def read(app: Sphinx, name: str, content: list[str]) -> None:
    """Called for each page as it is read; changes its text in place."""
    page = f"docs/{name}.md"
    if not (ROOT / page).is_file():
        return
    file = SHOWN_BY.get(page, page)
    if file != page:
        app.env.note_dependency(str(ROOT / file))
        content[0] = (ROOT / file).read_text()
    content[0] = to_site(content[0], file, page)


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx when to call it."""
    app.connect("source-read", read)
    return {"parallel_read_safe": True}
