"""Documents that do not lie: links lead somewhere, lines fit, and the programs on them run."""

import io
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from qunlearn.store.run import Run

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
WIDEST, LONGEST = 100, 150


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def programs(page: Path, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def prose(text: str) -> str:
    """The text without its blocks of code."""
    return re.sub(r"(?ms)^```.*?^```|^    [^\n]*$", "", text)


def anchors(page: Path) -> set[str]:
    """What GitHub and the site call the headings of a page."""
    heads = re.findall(r"(?m)^#+ (.+)$", prose(page.read_text()))
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text())):
        if ":" in target:
            address = urlsplit(target)
            assert address.scheme in ("https", "mailto"), target
            assert "." in address.netloc or address.scheme == "mailto", target
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), target
        if anchor and linked.suffix == ".md" and "<!-- generated" not in linked.read_text():
            assert anchor in anchors(linked), target


@pytest.mark.parametrize("page", [*PAGES, ROOT / "benchmarks" / "README.md"], ids=name)
def test_lines_fit(page):
    # A row of figures cannot be broken; only pages of results have such rows.
    may_be_wide = page.stem in ("results", "what-was-tried") or page.parent.name == "results"
    for line in page.read_text().splitlines():
        assert len(line) <= WIDEST or (may_be_wide and line.startswith("|")), line


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_is_short_and_says_what_it_answers(page):
    lines = page.read_text().splitlines()
    if lines[0].startswith("The site shows"):
        return  # a file of the repository, which is checked itself
    kind = page.relative_to(ROOT).parts[1] if page.is_relative_to(DOCS) else page.stem
    if kind != "CHANGELOG":  # which holds the history of all pages
        assert len(lines) <= {"reference": 250, "README": 120}.get(kind, LONGEST)
    assert "answer" in " ".join(lines[1:6]), "a page says first which question it answers"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_paragraphs_are_short_and_formulas_are_text(page):
    """The site has no MathJax, which would be fetched: a formula in TeX stays as it is typed."""
    text = prose(page.read_text())
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.strip("\n").splitlines()
        if lines and not re.match(r"\||- |\d+\. |#|\s|\[\w+\]: ", lines[0]):
            assert len(lines) <= 5, paragraph
    assert not re.search(r"\$\$|\$\\[a-z]", text)


def test_pages_that_quote_the_same_run_have_the_same_figures():
    """The README, ten minutes with digits, calibration and export show what one network gives."""
    pages = ("README.md", "docs/start/digits.md", "docs/explain/calibration.md")
    pages += ("docs/howto/export.md",)
    readme, digits, calibration, export = (
        " ".join((ROOT / page).read_text().split()) for page in pages
    )
    for page, first, last in (
        (readme, "trained on", "450 $ "),
        (readme, "Did the model forget? Yes: ", "differences of up to 8 points may be"),
        (calibration, "Target reached.", "before forgetting 99.9 %."),
        (export, "model.onnx: 79,", "samples get the same class;"),
    ):
        quoted = first + page.partition(first)[2].partition(last)[0]
        assert len(quoted) > len(first)
        assert quoted.strip() in digits


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_stand_as_code(page):
    """One that lost its indentation is read as a sentence."""
    assert not re.findall(r"(?m)^qunlearn \w+ .*--.*$", prose(page.read_text()))


def test_every_page_is_in_a_table_of_contents(extension):
    for part in ("start", "howto", "explain", "reference", "project"):
        assert f"{part}/index" in (DOCS / "index.md").read_text()
        text = (DOCS / part / "index.md").read_text()
        listed = text.replace("<!-- the others -->", extension.the_others(f"{part}/index", text))
        for page in (DOCS / part).glob("*.md"):
            assert page.name == "index.md" or page.stem in listed.splitlines()
    assert "\nresults/*\n" in (DOCS / "reference" / "results.md").read_text()


def test_the_readmes_program_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (program,) = programs(ROOT / "README.md")
    for folder in re.findall(r"--out (\S+)", (ROOT / "README.md").read_text()):
        (tmp_path / folder).mkdir(parents=True)  # as the commands above it leave them
        (tmp_path / folder / "run.json").touch()
    exec(program.replace("epochs=5", "epochs=1"), {})
    assert "times smaller" in capsys.readouterr().out
    assert Run.is_complete(tmp_path / "runs" / "python-forgotten")
    assert (tmp_path / "model.onnx").is_file()


def test_the_page_on_measuring_has_a_program_that_runs(capsys):
    (program,) = programs(DOCS / "explain" / "measuring.md")
    exec(program, {})
    assert capsys.readouterr().out == "50.0\n"


def test_the_page_on_data_has_a_program_that_runs(capsys):
    (program,) = programs(DOCS / "reference" / "data.md")
    exec(program, {})
    told = capsys.readouterr().out
    assert "100 images of 1×8×8 (20 test), 10 classes; mean 0.5, std 0.25; crop 1)" in told
    assert "forget 4" in told


def test_the_page_on_quantizers_has_one_that_passes_the_conformance_kit():
    from qunlearn.quant import families

    *_, program = programs(DOCS / "howto" / "write-a-quantizer.md")
    try:
        exec(program, {})
        assert "absmax" in families
    finally:
        families.drop("absmax")


def test_the_page_on_built_in_quantizers_has_settings_that_hold():
    import qunlearn as qu

    (program,) = programs(DOCS / "reference" / "quantizers.md")
    spec = eval(program, {"qu": qu})
    assert (spec.weights, spec.activations) == (2, None)
    assert spec.overrides["head"] is None


def test_every_page_with_a_program_has_a_test_that_runs_it():
    """All but HTML and C++; a page that gets a program gets a test, and a line here."""
    with_one = {name(page) for page in PAGES if programs(page) + programs(page, "bash")}
    here = {"README.md", "docs/explain/measuring.md", "docs/reference/data.md"}
    here |= {"docs/start/digits.md", "docs/start/own-network.md"}
    here |= {"docs/howto/write-a-quantizer.md", "docs/reference/quantizers.md"}
    elsewhere = {
        "docs/howto/export.md": "export/test_export.py",
        "docs/howto/requests.md": "evidence/test_story.py",
        "docs/howto/write-a-method.md": "methods/test_find.py",
    }
    assert with_one == here | set(elsewhere)
    for page, test in elsewhere.items():
        assert Path(page).name in (ROOT / "tests" / test).read_text()


def statements(page: Path) -> list[str]:
    """The commands of a page, each whole: with its continued lines, quotes and here-documents."""
    text = "".join(programs(page, "bash")).replace("\\\n", " ")
    pattern = r"""(?msx) ^cat \ >.*?^EOF$ | ^python\ -c\ ".*?"(?:\ >\ \S+)?$ | ^\w[^\n]*$"""
    return re.findall(pattern, text)


@pytest.mark.parametrize("page", ["digits", "own-network"])
def test_the_start_pages_run_as_they_stand(page, qunlearn, tmp_path, monkeypatch):
    """In one process and with fewer epochs, for speed; what is neither ours nor Python is bash."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    printed = {}
    try:
        for words in statements(DOCS / "start" / f"{page}.md"):
            if words.startswith("qunlearn "):
                asked = shlex.split(words.replace("--epochs 40", "--epochs 4"))[1:]
                code, out, err = qunlearn(*asked)
                # So little training may leave too little to judge; the pages have it in full.
                assert code in ((0, 3) if asked[0] == "forget" else (0,)), (words, err)
                printed[asked[0]] = out
            elif words.startswith("python -c"):
                exec(re.search('"(.*)"', words, re.DOTALL)[1], {})
            elif words.startswith("python "):
                program = (tmp_path / words.split()[1]).read_text()
                exec(program.replace("range(40)", "range(4)"), {})
            else:
                subprocess.run(["bash", "-ec", words], check=True)
    finally:
        sys.modules.pop("nets", None)
    assert "Did the model forget?" in printed["forget"]
    made = {"digits": "runs/forgotten/report.html", "own-network": "runs/without/model.safetensors"}
    assert (tmp_path / made[page]).is_file()


@pytest.fixture
def extension(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_ext")
    import generated

    yield generated
    sys.modules.pop("generated", None)


def test_reference_pages_are_made_from_the_code(extension):
    from qunlearn.cli.main import COMMANDS
    from qunlearn.methods import constants

    made = {page: make() for page, make in extension.MADE.items()}
    for command in COMMANDS:
        assert f"# qunlearn {command}\n" in made["commands"]
    assert "`--held-out`" in made["commands"]
    assert "### calibrated" in made["settings"]
    assert "`batch_size`" in made["settings"]
    assert made["constants"] == constants.table()
    assert "`attack_accuracy`" in made["findings"]
    text = "".join(page.read_text() for page in PAGES)
    assert sorted(re.findall("<!-- generated: (.*) -->", text)) == sorted(made)


def test_the_table_of_studies_is_that_of_the_benchmarks(extension, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from standing import main

    with redirect_stdout(io.StringIO()) as out:
        main()
    assert extension.standing() == out.getvalue() != ""


def test_links_to_files_of_the_repository_hold_on_the_site(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_ext")
    from repository_links import PAGES as SHOWN
    from repository_links import to_site

    text = "[a](docs/howto/adopt.md#x), [b](SECURITY.md), [c](https://example.org/d.md)"
    assert to_site(text, "CHANGELOG.md", "docs/project/changelog.md") == (
        "[a](../howto/adopt.md#x), [b](security.md), [c](https://example.org/d.md)"
    )
    assert to_site("[a](../../CHANGELOG.md)", "docs/start/a.md", "docs/start/a.md") == (
        "[a](../project/changelog.md)"
    )
    for file, page in SHOWN.items():
        assert (ROOT / file).is_file()
        assert (ROOT / page).is_file() or page.startswith("docs/gallery/")  # made when built


def test_assets_from_elsewhere_are_found(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_ext")
    from finish import accessible, assets_elsewhere

    loading = [
        '<script async="async" src="https://cdn.example.org/a.js',
        '<img alt="x" src="//example.org/a.png',
        '<link href="https://fonts.example.org/a.css',
        "@import url(https://example.org/a.css",
    ]
    for asset in loading:
        tail = '" rel="stylesheet">' if asset.startswith("<link") else '">'
        assert assets_elsewhere(asset + tail), asset
    assert not assets_elsewhere('<a href="https://example.org/">x</a><img src="_images/a.png">')
    assert accessible("<pre>x</pre>") == '<pre tabindex="0">x</pre>'
