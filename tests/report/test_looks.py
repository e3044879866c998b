"""What every reader can count on: words before letters, contrast, landmarks, a line per figure."""

import itertools
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report.made_up import comparison, table
from report.test_page import forgotten  # noqa: F401

import qunlearn.report
from qunlearn.report import report_comparison, report_run
from qunlearn.report.drawing import FORGET, KNOWN, ON_BAR, OTHERS, PAPER

CSS = (Path(qunlearn.report.__file__).parent / "templates" / "page.css").read_text()
LETTERS = r"\b(FA|RA|TA|MIA|AG|LiRA|AUC|TPR|FPR|KS|BatchNorm|logits?)\b"


class Outline(HTMLParser):
    """The landmarks and headings of a page."""

    def __init__(self, text):
        super().__init__()
        self.headings, self.tags, self.named, self.figures, self.lines = [], [], [], 0, 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if given.get("role") == "region" or tag == "nav":
            self.named.append(given["aria-label"])
        self.figures += tag == "figure"
        self.lines += given.get("class") == "line"
        assert int(given.get("tabindex", 0)) == 0  # the order is that of the page


@pytest.fixture(params=["comparison", "run", "run beside Retrain"])
def page(request, forgotten, tmp_path):  # noqa: F811
    if request.param == "comparison":
        return report_comparison(comparison(tmp_path / "table", table())).read_text()
    import shutil

    shutil.copytree(forgotten, tmp_path / "runs")
    beside = {"reference": tmp_path / "runs" / "retrain"} if "Retrain" in request.param else {}
    return report_run(tmp_path / "runs" / "calibrated", **beside).read_text()


def words(html):
    return re.sub(r"<[^>]*>", " ", re.sub(r"<(style|title)>.*?</\1>", "", html, flags=re.S))


def test_the_first_screen_has_no_letters_that_were_not_named(page):
    first, _, rest = page.partition('id="engineers"')
    assert re.findall(LETTERS, words(first)) == []
    for question in ("Did the model forget?", "stay good?", "How sure are we?", "What was asked"):
        assert question in first
    # For engineers, the letters are named before the first figure has them.
    assert rest.index("FA, RA and TA: the share") < rest.index('class="tiles"')


def test_landmarks_and_headings(page):
    outline = Outline(page)
    assert outline.tags.count("main") == outline.tags.count("h1") == 1
    assert outline.headings[0] == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(outline.headings))
    assert len(outline.named) == len(set(outline.named))
    assert '<html lang="en">' in page
    assert "<script" not in page


def test_every_figure_has_a_line_under_it(page):
    outline = Outline(page)
    assert outline.figures == outline.lines > 0
    assert '<span class="line"></span>' not in page


def luminance(colour):
    values = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a, b):
    lighter, darker = sorted((luminance(a), luminance(b)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_contrast_is_computed_as_the_guidelines_do():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def themes():
    """The colours of each theme: light, dark and print."""
    found = [
        dict(re.findall(r"--([\w-]+):(#\w+)", block))
        for block in re.findall(r":root{(.*?)}", CSS, re.S)
    ]
    return [
        {
            name: c if len(c) == 7 else "#" + "".join(2 * x for x in c[1:])
            for name, c in each.items()
        }
        for each in found
    ]


@pytest.mark.parametrize("theme", themes(), ids=["light", "dark", "print"])
def test_words_stand_out_from_what_is_behind_them(theme):
    on = {"ink": ("card", "page", "code", "best"), "soft": ("card", "page", "best")}
    on |= dict.fromkeys(("yes", "mostly", "unsure", "no"), ("card", "page"))
    faint = {
        (word, behind): contrast(theme[word], theme[behind])
        for word, places in on.items()
        for behind in places
        if contrast(theme[word], theme[behind]) < 4.5
    }
    assert faint == {}
    assert contrast(theme["on-bar"], theme["forget"]) >= 4.5
    assert contrast(theme["on-bar"], theme["known"]) >= 4.5


SEEN_BY = {  # Machado, Oliveira and Fernandes (2009), full severity, on linear light
    "protanopia": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "deuteranopia": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "tritanopia": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
}


@pytest.mark.parametrize("matrix", SEEN_BY.values(), ids=SEEN_BY)
def test_the_figures_colours_can_be_told_by_people_with_colour_blindness(matrix):
    def seen(colour):
        values = [(int(colour[i : i + 2], 16) / 255) ** 2.2 for i in (1, 3, 5)]
        mixed = [
            max(0, min(1, sum(w * v for w, v in zip(row, values, strict=True)))) for row in matrix
        ]
        return [v ** (1 / 2.2) for v in mixed]

    colours = [FORGET, KNOWN, *OTHERS[:2]]  # the segments of a bar, side by side
    for a, b in itertools.pairwise(colours):
        assert sum((x - y) ** 2 for x, y in zip(seen(a), seen(b), strict=True)) ** 0.5 > 0.15
    assert contrast(ON_BAR, PAPER) < 1.1  # numbers stand on the bars only
