"""Checks pages with axe-core in Chromium, on a desk and a phone, in light and dark: `make axe`.

    python tools/axe.py PAGE...     # pages, or the folder of the site: then its main pages

axe-core is taken from build/axe, where `make axe` installs it by npm. Prints what axe-core finds
and ends with 1 if there is anything.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).parents[1]
AXE = ROOT / "build" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DESK, PHONE = 1200, 400
MAIN = (
    "index.html",
    "start/digits.html",
    "howto/requests.html",
    "explain/measuring.html",
    "reference/commands.html",
    "gallery/compare_methods.html",
)
"""One page of each part of the site."""

# The page stands in a frame, so that it can be narrower than a window may be.
HOST = """<!doctype html><html><head><base href="{base}"></head><body>
<iframe style="width:{width}px;height:900px;border:0"></iframe><pre></pre>
<script type="application/json" id="page">{page}</script><script>
const frame = document.querySelector("iframe");
frame.addEventListener("load", async () => {{
  const page = frame.contentDocument, script = page.createElement("script");
  script.textContent = document.querySelector("#axe").textContent;
  page.head.append(script);
  const found = await frame.contentWindow.axe.run(page);
  const told = found.violations.map((v) => [v.id, v.help, v.nodes.map((n) => n.html)]);
  document.querySelector("pre").textContent =
    encodeURIComponent(JSON.stringify({{violations: told, passed: found.passes.length}}));
}});
addEventListener("load", () => {{
  frame.srcdoc = JSON.parse(document.querySelector("#page").textContent);
}});
</script><script type="text/plain" id="axe">{axe}</script></body></html>"""


def violations(page: Path, width: int, dark: bool = False) -> list[str]:
    """What axe-core finds on a page in a frame of so many pixels, one line for each rule."""
    assert CHROMIUM is not None, "Chromium is not installed"
    # The page's own policy forbids scripts, and axe-core is one.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy".*?>', "", page.read_text())
    with tempfile.TemporaryDirectory(prefix="qunlearn-axe-") as name:
        host = Path(name) / "host.html"
        host.write_text(
            HOST.format(
                base=page.resolve().as_uri(),
                width=width,
                page=json.dumps(text).replace("</", "<\\/"),
                axe=AXE.read_text(),
            )
        )
        call = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        call += ["--disable-background-networking", f"--user-data-dir={name}/profile"]
        call += ["--virtual-time-budget=60000", *(["--force-dark-mode"] if dark else [])]
        done = subprocess.run(
            [*call, "--dump-dom", host.as_uri()], capture_output=True, text=True, check=True
        )
    # Percent-encoded, so that the page's own markup cannot end it.
    told = re.search("<pre>(%7B.*?)</pre>", done.stdout)
    assert told, f"axe-core said nothing about {page}: {done.stderr}"
    found = json.loads(unquote(told[1]))
    assert found["passed"], f"axe-core found nothing to check on {page}"
    return [f"{rule}: {text}: {' '.join(nodes[:3])}" for rule, text, nodes in found["violations"]]


def main(arguments: list[str]) -> None:
    """Check every page named, four times."""
    if not (CHROMIUM and AXE.is_file()):
        sys.exit("axe: needs Chromium and axe-core; `make axe` installs the second by npm.")
    pages: list[Path] = []
    for path in map(Path, arguments):
        pages += [path / page for page in MAIN] if path.is_dir() else [path]
    found = 0
    for page in pages:
        for width in (DESK, PHONE):
            for dark in (False, True):
                told = violations(page, width, dark)
                found += len(told)
                shown = f"{page}, {width} pixels, {'dark' if dark else 'light'}"
                print(f"{shown}: {len(told) or 'nothing'} found", *told, sep="\n  ", flush=True)
    sys.exit(bool(found))


if __name__ == "__main__":
    main(sys.argv[1:])
