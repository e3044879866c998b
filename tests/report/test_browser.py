"""The pages in a browser, on a phone and on a desk: only where Chromium is installed."""

import json
import re
import runpy
import shutil
import subprocess
from datetime import date
from pathlib import Path

import pytest
from report.made_up import SCORES, comparison, table

from qunlearn.evidence.certify import certify
from qunlearn.evidence.keys import new_keys
from qunlearn.evidence.ledger import ledger
from qunlearn.report import report_comparison, report_run
from qunlearn.report.ledger import judged, write_ledger
from qunlearn.report.record import findings_of, record_page
from qunlearn.store.run import Run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
LOOK = Path(__file__).with_name("look.js")
AXE = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "axe.py"))
PAGES = ("run", "comparison", "ledger", "record")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


def looked_at(page, width, folder):
    """What the browser makes of a page in a frame of so many pixels."""
    # The page's own policy forbids scripts; what measures stands outside, in the frame's host.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy".*?>', "", page.read_text())
    content = json.dumps(text).replace("</", "<\\/")
    host = folder / "host.html"
    host.write_text(
        f'<!doctype html><body><iframe style="width:{width}px;height:9000px;border:0"></iframe>'
        f'<pre></pre><script type="application/json" id="page">{content}</script>'
        f"<script>{LOOK.read_text()}</script>"
    )
    call = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    call += ["--virtual-time-budget=4000", f"--user-data-dir={folder / 'profile'}"]
    done = subprocess.run([*call, host.as_uri()], capture_output=True, text=True, check=True)
    return json.loads(re.search("<pre>({.*?})</pre>", done.stdout, re.S)[1])


def wide_table():
    """A comparison whose figures have as many digits as real ones may."""
    content = table()
    for row in content["rows"]:
        row |= {score: [row[score][0], 10.01] for score in SCORES}
        row["gaps"] = {score: [gap, 10.01] for score, (gap, _) in row["gaps"].items()}
        row |= {"AG": [row["AG"][0], 14.17], "runtime": [112.5, 14.1]}
    return content


@pytest.fixture(scope="session")
def pages(run_folder, tmp_path_factory):
    """Of a run, a comparison, a folder's requests and a signed record."""
    from qunlearn.runs.forget import forget_run
    from qunlearn.runs.request import ForgetConfig

    base = tmp_path_factory.mktemp("looks")
    asked = {"run": run_folder, "random": 0.1, "method": "oeu", "epochs": 1, "threads": 1}
    forget_run(ForgetConfig.parse(asked), base / "run")
    run, key = Run.open(base / "run"), new_keys(base / "officer.pem").private
    certify(run, key, findings_of(run), record_page)
    today = date(2026, 1, 5)
    return {
        "run": report_run(base / "run"),
        "comparison": report_comparison(comparison(base / "table", wide_table())),
        "ledger": write_ledger(base, ledger(base, today, judged), today),
        "record": base / "run" / "forgetting.html",
    }


@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize("kind", PAGES)
def test_nothing_overflows_overlaps_or_is_too_faint(pages, kind, width, tmp_path):
    seen = looked_at(pages[kind], width, tmp_path)
    assert seen["overflow"] == seen["overlap"] == seen["faint"] == []
    assert seen["wide"] <= 0
    # A comparison has too many columns for a phone; whatever else would have to be scrolled is cut.
    assert seen["scrolled"] == [] or (kind, width) == ("comparison", 400)
    assert not seen["disordered"]
    assert seen["tabs"] >= (0 if kind == "record" else 3)


def test_a_page_that_is_too_wide_overlaps_and_is_faint_is_found(tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(
        "<html><body><p style='width:900px;color:#999'>wide and faint</p>"
        "<p style='margin-top:-30px'>on top of it</p></body></html>"
    )
    seen = looked_at(page, 400, tmp_path)
    assert seen["overflow"]
    assert seen["overlap"]
    assert seen["faint"]


axe_core = pytest.mark.skipif(
    not AXE["AXE"].is_file(), reason="axe-core is not installed: `make axe`"
)


@axe_core
@pytest.mark.parametrize("width", [AXE["PHONE"], AXE["DESK"]])
@pytest.mark.parametrize("kind", PAGES)
def test_axe_finds_nothing(pages, kind, width):
    assert AXE["violations"](pages[kind], width) == []


@axe_core
def test_axe_finds_a_page_that_cannot_be_read_aloud(tmp_path):
    page = tmp_path / "bad.html"
    page.write_text("<html><body><img src='x.png'><p style='color:#aaa'>faint</p></body></html>")
    found = " ".join(AXE["violations"](page, AXE["DESK"]))
    assert all(rule in found for rule in ("color-contrast", "image-alt", "html-has-lang"))
