"""The page itself: whole, alone, escaped, the same twice; and folders that get none."""

import base64
import html
import json
import re
import shlex
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from conftest import SMALL, made_once
from forked import Started
from report.made_up import MODELS, RETRAIN, comparison, measured, table
from sealed import seal

from qunlearn.cli.output import print_scores
from qunlearn.errors import UserError
from qunlearn.report import report_comparison, report_folder, report_run
from qunlearn.report.sections import moment
from qunlearn.runs.config import TrainConfig
from qunlearn.runs.forget import forget_run
from qunlearn.runs.metrics import RunMetrics
from qunlearn.runs.request import ForgetConfig
from qunlearn.runs.train import train_run
from qunlearn.store.typed import typed


class Reader(HTMLParser):
    """Checks that tags are balanced and ids unique; keeps what is seen."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.words, self.links = [], [], [], [], []
        self.attributes = set()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.add(name)
            self.ids += [value] if name == "id" else []
            self.links += [value] if name in ("href", "src", "xlink:href") else []
        if tag not in ("meta", "br", "hr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in ("meta", "br", "hr"):
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data.replace("\N{NO-BREAK SPACE}", " "))

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def read(page):
    """Read a page, after what every page must hold to."""
    text = page.read_text()
    reader = Reader(text)
    assert len(reader.ids) == len(set(reader.ids))
    assert {link.removeprefix("#") for link in reader.links} <= set(reader.ids)
    assert all(used in reader.ids for used in re.findall(r"url\(#([^)]*)\)", text))
    assert not re.search(r"https?:|<script|<image|<img|<link|base64|@import", text)
    assert reader.tags.count("svg") == text.count('role="img"') == text.count("<svg role=")
    drawn = sorted(p.name for p in (page.parent / "figures").iterdir())
    assert len(drawn) == 2 * reader.tags.count("svg")
    for path in (page.parent / "figures").glob("*.svg"):
        assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
        assert "base64" not in path.read_text()
    return reader


@pytest.fixture(scope="session")
def forgotten(run_folder, tmp_path_factory):
    """Runs on the same request, not to be changed."""

    def make(base):
        for name in ("calibrated", "oeu", "retrain"):
            settings = {"epochs": 1, "batch_size": 60}
            asked = {"run": run_folder, "random": 0.1, "method": name, "settings": settings}
            forget_run(ForgetConfig.parse({**asked, "threads": 1}), base / name)

    return made_once(tmp_path_factory, "page", make)


@pytest.fixture
def runs(forgotten, tmp_path):
    shutil.copytree(forgotten, tmp_path / "runs")
    return tmp_path / "runs"


def test_a_comparison_gets_a_page(tmp_path):
    folder = comparison(tmp_path / "table", table())
    page = report_comparison(folder)
    assert page == folder / "report.html"
    text = read(page).text
    assert "The method nearest to Retrain, forgetter, decides the answer above." in text
    assert "By forgetter, the method that comes nearest to retraining" in text
    assert "✓ Yes: as far as these measurements can tell" in text
    for words in ("memoriser: ✗ No", "eager: ! Too much", "noise floor", "runner-up", "12.5 %"):
        assert words in text
    assert f"qunlearn compare --config {folder / 'compare.toml'} --out NEW" in text
    assert "Settings were not searched for" in text
    assert {"gaps.svg", "gaps.png", "runtime.svg", "runtime.png"} == {
        path.name for path in (folder / "figures").iterdir()
    }


def test_every_page_says_when_its_runs_were_made(runs, tmp_path):
    infos = [json.loads((runs / n / "run.json").read_text()) for n in ("calibrated", "retrain")]
    begun, finished = infos[0]["begun"], infos[0]["finished"]
    assert (
        f"Begun {moment(begun)}, finished {moment(finished)}."
        in read(report_run(runs / "calibrated")).text
    )
    folder = comparison(tmp_path / "table", table({"calibrated": MODELS["forgetter"]}))
    assert "When it was made is not on record." in read(report_comparison(folder)).text
    for name in ("calibrated", "retrain"):
        shutil.copytree(runs / name, folder / "cells" / name / "seed0")
    finished = max(info["finished"] for info in infos)
    begun = min(info["begun"] for info in infos)
    assert (
        f"Begun {moment(begun)}, finished {moment(finished)}."
        in read(report_comparison(folder)).text
    )


def test_the_command_that_makes_a_run_again_makes_it_again(tmp_path):
    """Also with a network and a method of one's own, and with a space in the folder's name."""
    tests = Path(__file__).parents[1]
    page = tests.parent / "docs" / "howto" / "write-a-method.md"
    own, *_ = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    (tmp_path / "neggrad.py").write_text(own)

    def run(words):
        assert Started(words, tmp_path, tmp_path / "log").end(120)[0] == 0

    small = {**SMALL, "model": "plain_net:make", "width": 1.0, "epochs": 1}
    train_run(TrainConfig.parse(small), tmp_path / "my runs" / "original")
    words = "--random 0.1 --model plain_net:make --method neggrad:neggrad --epochs 1 --threads 1"
    given = ["forget", "my runs/original", *words.split(), "--out", "my runs/a"]
    run(given)
    page = report_run(tmp_path / "my runs" / "a").read_text()
    command = html.unescape(re.search("<pre>(.*?)</pre>", page)[1])
    assert command.endswith("--model plain_net:make --method neggrad:neggrad --out NEW")
    program, *words = shlex.split(command)
    assert program == "qunlearn"
    run(words)
    for name in ("model.safetensors", "config.toml", "split.json"):
        assert (tmp_path / "NEW" / name).read_bytes() == (
            tmp_path / "my runs" / "a" / name
        ).read_bytes()


def test_one_sample_is_found_out_by_chance(tmp_path):
    content = table()
    content["parts"] = {**content["parts"], "forget": 1}
    for row in content["rows"][1:]:
        row["lira"] = {"AUC": [1.0, 0.0], "AUC of |z|": [1.0, 0.0]}
    text = read(report_comparison(comparison(tmp_path / "a", content))).text
    assert "identifies some of them" not in text
    assert "To forget 1 sample (random: fraction 0.1, seed 0), and to keep" in text


@pytest.mark.parametrize(
    ("found", "yes"),
    [
        ({"AUC": [0.52, 0.03], "AUC of |z|": [0.51, 0.02]}, True),
        ({"AUC": [0.58, None], "AUC of |z|": [0.51, None]}, True),
        ({"AUC": [0.51, 0.02], "AUC of |z|": [0.44, 0.02]}, True),
        ({"AUC": [0.593, 0.039], "AUC of |z|": [0.51, 0.02]}, False),
        ({"AUC": [0.45, 0.04], "AUC of |z|": [0.51, 0.02]}, False),
        ({"AUC": [0.51, 0.02], "AUC of |z|": [0.684, 0.087]}, False),
    ],
)
def test_who_is_found_out_by_lira_has_forgotten_mostly(tmp_path, found, yes):
    content = table()
    best = min(content["rows"][1:], key=lambda row: row["AG"][0])
    best["lira"] = found
    text = read(report_comparison(comparison(tmp_path / "a", content))).text
    assert ("✓ Yes: as far as these measurements can tell" in text) == yes
    assert ("an attack on each sample by itself can tell some" in text) != yes
    assert ("LiRA, which judges each sample by itself, identifies some of them" in text) != yes


def test_a_retrain_that_has_not_learned_is_called_so(tmp_path, capsys):
    content = table()
    known = content["original"]["RA"]
    assert (
        "no fair reference" not in read(report_comparison(comparison(tmp_path / "a", content))).text
    )
    next(row for row in content["rows"] if row["method"] == "retrain")["RA"][0] = known - 21
    text = read(report_comparison(comparison(tmp_path / "b", content))).text
    assert f"Retrain is right on {known - 21:.1f} % of what it was taught" in text
    now = {"RA": 90.0, "FA": 80.0, "TA": 70.0, "MIA": 20.0}
    for ra in (70.1, 69.9):
        run = {**measured(now), "reference": measured({**now, "RA": ra})}
        for part in run["parts"].values():
            part |= {"agreement": 99.0, "divergence": 0.1}
        print_scores(typed(RunMetrics, run, tmp_path))
    out = capsys.readouterr().out
    assert out.count("no fair reference") == 1
    assert "its accuracy on the retained samples is 69.9 %, this model's 90.0 %" in out


def test_a_comparison_says_how_settings_were_chosen(tmp_path):
    content = table(select="oracle")
    content["rows"][1]["trials"] = 8
    content["rows"][1]["lira"] = {"AUC": [0.512, 0.01], "TPR at 1 % FPR": [1.5, 0.2]}
    text = read(report_comparison(comparison(tmp_path / "a", content))).text
    for words in ("by looking at Retrain (oracle)", "comparison is not even", "0.512 ± 0.010"):
        assert words in text
    alone = table(seeds=1, select="heldout")
    text = read(report_comparison(comparison(tmp_path / "b", alone))).text
    for words in ("no noise floor", "by looking at held-out data only", "single Retrain"):
        assert words in text
    assert "Seed 0 is among the seeds reported" in text
    borrowed = table(select="oracle", settings_from="other/table.json")
    text = read(report_comparison(comparison(tmp_path / "c", borrowed))).text
    assert (
        "Settings are those of the comparison other/table.json, chosen there by looking at Retrain"
        in text
    )


def test_a_comparison_says_what_failed_and_what_is_not_fair(tmp_path):
    content = table(failed={"ga": "seed 1: the loss became nan."})
    content["rows"][1]["evenly_timed"] = False
    content["rows"][1]["lira"] = {"AUC": [0.5, None]}
    text = read(report_comparison(comparison(tmp_path / "a", content))).text
    for words in ("ga failed, seed 1: the loss became nan.", "~ 12.5 %", "Not a fair time"):
        assert words in text
    assert "TPR at 1 % FPR is left out" in text


def test_a_comparison_shows_the_predictions_of_every_part(tmp_path):
    text = read(report_comparison(comparison(tmp_path / "a", table()))).text
    for words in ("forgetter held out 0.500 87.50 % 0.0123", "retrain test 0.500"):
        assert words in text


def test_names_from_outside_are_escaped(tmp_path):
    nasty = ("<b>x", 'a"onload="alert(1)', "$x_{$&amp;", "../../retrain", "a:b", "a-b")
    content = table(dict.fromkeys(nasty, MODELS["forgetter"]), request="</p><script>")
    content["detail"] = {"<i>": "<script>"}
    folder = comparison(tmp_path / "<u>", content)
    page = report_comparison(folder)
    reader = read(page)
    assert not {"b>x", "i", "u", "script"} & set(reader.tags)
    for name in nasty:
        assert name in reader.text
    assert "onload" not in reader.attributes


def test_a_comparison_with_cells_shows_their_outputs(runs, tmp_path):
    folder = comparison(tmp_path / "table", table({"oeu": MODELS["forgetter"]}))
    for name in ("oeu", "retrain"):
        shutil.copytree(runs / name, folder / "cells" / name / "seed0")
    text = read(report_comparison(folder)).text
    for words in (
        "Confidence in the true label",
        "forgotten sample is spread",
        "in conflict",
        "torch",
    ):
        assert words in text
    assert "the bar of the true class ends near Retrain's mark" in text
    names = {path.stem.partition("-")[0] for path in (folder / "figures").iterdir()}
    assert names == {"gaps", "runtime", "confidence", "answers", "sample", "conflict"}


def test_a_run_beside_retrain(runs):
    text = read(report_run(runs / "calibrated", reference=runs / "retrain")).text
    for words in ("Did the model forget?", "How far from Retrain", "line: Retrain", "digits"):
        assert words in text
    assert "the line is near Retrain's" in text
    assert f"qunlearn forget --config {runs / 'calibrated' / 'config.toml'} --out NEW" in text


def test_a_run_alone_says_what_is_missing(runs):
    text = read(report_run(runs / "calibrated")).text
    assert "There is no retrained model to compare with" in text
    for words in ("How far from Retrain", "near Retrain's", "Retrain's line"):
        assert words not in text
    chosen = json.loads((runs / "calibrated" / "metrics.json").read_text())["chosen"]
    assert f"lr={chosen['lr']:g}" in text  # which nobody gave
    assert "the one that changed most, not a typical one" in text


def test_a_class_that_is_gone_is_to_look_like_its_own_test_samples(run_folder, tmp_path):
    asked = {"run": run_folder, "classes": ["3"], "method": "calibrated", "epochs": 1, "threads": 1}
    run = forget_run(ForgetConfig.parse(asked), tmp_path / "class")
    text = read(report_run(run.path)).text
    assert "like the part “test, forgotten classes”" in text
    assert "whose class is gone, all are at the left" in text
    gone = run.metrics["parts"]["test_forgotten"]
    assert f"on unseen ones {100 * gone['confidence']:.1f} %" in text


def test_an_image_is_shown_only_while_it_is_asked_for(runs):
    page = report_run(runs / "calibrated", reference=runs / "retrain", image=True)
    shown = base64.b64decode(re.search('data:image/png;base64,([^"]*)"', page.read_text())[1])
    assert shown.startswith(b"\x89PNG")
    assert "; img-src data:" in page.read_text()  # or the browser would not show it
    assert (runs / "calibrated" / "figures" / "image.png").is_file()
    read(report_run(runs / "calibrated", reference=runs / "retrain"))
    assert not list((runs / "calibrated" / "figures").glob("image*"))


def test_without_the_origin_or_the_outputs_the_rest_is_shown(runs):
    config = runs / "calibrated" / "config.toml"
    config.write_text(re.sub(r'(?m)^run = ".*"$', 'run = "gone"', config.read_text()))
    seal(runs / "calibrated")
    text = read(report_run(runs / "calibrated")).text
    assert "Not shown: the model before forgetting" in text
    assert "One of them" not in text
    with pytest.raises(UserError, match="put the run before back"):
        report_run(runs / "calibrated", image=True)
    (runs / "calibrated" / "predictions.safetensors").unlink()
    assert "outputs were not kept" in read(report_run(runs / "calibrated")).text
    page = (runs / "calibrated" / "report.html").read_text()
    with pytest.raises(UserError, match="no sample whose image could be shown"):
        report_run(runs / "calibrated", image=True)
    assert (runs / "calibrated" / "report.html").read_text() == page


def test_the_same_folder_gives_the_same_bytes(runs):
    def written():
        files = [runs / "calibrated" / "report.html", *(runs / "calibrated" / "figures").iterdir()]
        return {path.name: path.read_bytes() for path in files}

    report_run(runs / "calibrated", reference=runs / "retrain")
    first = written()
    report_run(runs / "calibrated", reference=runs / "retrain")
    assert written() == first


def refused(sentence, path, **more):
    before = sorted(path.rglob("*")) if path.is_dir() else None
    with pytest.raises(UserError, match=sentence):
        report_folder(path, **more)
    assert before is None or sorted(path.rglob("*")) == before


def test_folders_without_a_page(tmp_path, run_folder, runs):
    (tmp_path / "empty").mkdir()
    refused("neither a run nor a comparison", tmp_path / "empty")
    refused("no run folder", tmp_path / "nowhere")
    refused("has forgotten nothing", run_folder)
    folder = comparison(tmp_path / "table", table())
    refused("leave --reference out", folder, reference=runs / "retrain")
    (folder / "table.json").write_text(json.dumps({"rows": [{}]}))
    refused("table.json. is invalid", folder)
    (folder / "table.json").unlink()
    refused("was not finished", folder)


def test_references_that_are_none(runs, run_folder, tmp_path):
    refused("not made by Retrain", runs / "calibrated", reference=runs / "calibrated")
    asked = {"run": run_folder, "random": 0.2, "method": "retrain", "threads": 1}
    settings = {"epochs": 1, "batch_size": 60}
    forget_run(ForgetConfig.parse({**asked, "settings": settings}), tmp_path / "other")
    refused("retrained without other samples", runs / "calibrated", reference=tmp_path / "other")


def test_retrain_as_a_method_of_its_own_is_a_yes(tmp_path):
    folder = comparison(tmp_path / "table", table({"again": RETRAIN}))
    assert "again: ✓ Yes" in read(report_comparison(folder)).text
