"""What both kinds of page share: verdict, tiles, the figures' words, how to run it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from qunlearn.metrics.gap import SCORES
from qunlearn.quant import QuantSpec
from qunlearn.report.drawing import Drawn, panels
from qunlearn.report.html import Safe, join, section, table, tag, verbatim
from qunlearn.report.verdict import Verdict
from qunlearn.runs.metrics import metrics_of
from qunlearn.runs.provenance import asked_of
from qunlearn.store.run import Run, RunInfo
from qunlearn.store.weights import read_header

PLAIN = {
    "FA": "Right on the forgotten samples",
    "RA": "Right on the samples it keeps",
    "TA": "Right on new samples",
    "MIA": "Forgotten samples an attacker takes for unseen",
}
MEANING = (
    "FA, RA and TA: the share of the forgotten, retained and test samples that the model gets "
    "right. MIA: the share of forgotten samples that a membership attack takes for unseen. None of "
    "them is good high or low: a model retrained without the samples (Retrain) sets the mark."
)
MARKS = {"yes": "✓", "mostly": "≈", "unsure": "?", "no": "✗", "too-much": "!", "damaged": "!"}


def opening(title: str, what: str, question: str, verdict: Verdict, *below: object) -> Safe:
    """The first screen: what this is, and the answer."""
    answer = tag(
        "p",
        tag("b", f"{MARKS[verdict.level]} {verdict.word}:"),
        f" {verdict.headline}",
        class_="answer",
    )
    reasons = tag("ul", *(tag("li", reason) for reason in verdict.reasons))
    box = tag(
        "div",
        tag("p", question, class_="question"),
        answer,
        reasons,
        class_=f"verdict {verdict.level}",
    )
    head = join(tag("h1", title), tag("p", what, class_="what"))
    return tag("header", head, box, *below)


def cautions(verdict: Verdict) -> Safe:
    """How far the answer can be trusted."""
    listed = tag("ul", *(tag("li", caution) for caution in verdict.cautions), class_="note")
    return join(tag("h3", "How far to trust this"), listed)


def tiles(*shown: Safe) -> Safe:
    """Tiles side by side."""
    return tag("div", *shown, class_="tiles")


def score_tiles(
    before: Mapping[str, float], after: Mapping[str, float], retrain: Mapping[str, float]
) -> list[Safe]:
    """The four figures, before, after, and Retrain's."""
    return [
        tile(
            f"{PLAIN[score]} ({score})",
            f"{after[score]:.1f}",
            "%",
            {"before": f"{before[score]:.1f} %", "Retrain": f"{retrain[score]:.1f} %"},
        )
        for score in SCORES
    ]


def tile(title: str, number: str, unit: str, others: Mapping[str, str]) -> Safe:
    """One number, big, and others beside it, small."""
    big = tag("p", number, tag("small", f" {unit}"), class_="big")
    small = [join(tag("dt", name), tag("dd", value)) for name, value in others.items()]
    return tag("div", tag("h3", title), big, tag("dl", *small) if small else "", class_="tile")


def confidence_section(
    figures: Iterable[Drawn], retrain: bool, before: bool, whole_classes: bool
) -> Safe:
    """How confident in the truth, part by part; says what is not at hand."""
    shown = panels(figures)
    if not shown:
        return section("How sure of the truth", tag("p", ABSENT, class_="note"))
    good = (
        "Good: the coloured shape follows Retrain's line, above all in the row of the forgotten."
        if retrain
        else "Good: in the row of the forgotten, whose class is gone, all are at the left."
        if whole_classes
        else "Good: the row of the forgotten looks like the rows of samples that were never seen."
    )
    missing = "" if before else tag("p", NO_BEFORE, class_="note")
    return section("How sure of the truth", tag("p", CONFIDENCE, " ", good), shown, missing)


CONFIDENCE = (
    "Each row shows how many samples get how much confidence in their true class. A model is surer "
    "of samples it was trained on, so a bulge at the right in the first row alone means memory."
)


ABSENT = (
    "Not shown: the models' outputs were not kept, or samples have been erased from the data since."
)
NO_BEFORE = (
    "Not shown: the model before forgetting; its run is not where it was, or has other outputs."
)


def answers_section(
    figures: Iterable[Drawn], one: Iterable[Drawn], words: str, retrain: bool
) -> Safe:
    """How the answer is spread over the classes.

    Args:
        figures: On all forgotten samples.
        one: On one of them.
        words: Which one it is, and what to look for.
        retrain: Whether a Retrain's line is there, too.
    """
    good = (
        " Good: the line is near Retrain's; much flatter than Retrain's means that the model was "
        "made too unsure of them."
    )
    shown, single = panels(figures), panels(one)
    return section(
        "How the answer on a forgotten sample is spread",
        shown
        and tag(
            "p",
            "The model's probabilities on the forgotten samples, first choice first, averaged over "
            "all of them. A steep line is a sure answer.",
            good if retrain else "",
        ),
        shown,
        single
        and join(
            tag("h3", "One of them"),
            tag("p", words),
            single,
        ),
    )


def conflict_section(figures: Mapping[str, tuple[Drawn, str]]) -> Safe:
    """Where the two aims were in conflict; `figures` has by title the figure and its words."""
    shown = [
        join(figure.html(), tag("p", words, class_="note")) for figure, words in figures.values()
    ]
    return section(
        "Where forgetting and retaining were in conflict",
        shown
        and tag(
            "p",
            "Each row is a layer, from input to output; time runs from left to right. Orange: what "
            "helps to forget harms what is kept there, and the method has to give way. No colour "
            "is good or bad in itself; much orange explains why forgetting was hard.",
        ),
        *shown,
    )


def again_section(
    command: str,
    settings: Mapping[str, Mapping[str, object]],
    facts: Mapping[str, object],
    note: str,
) -> Safe:
    """What was run, and how to run it again."""
    rows = [
        (name, tag("code", " · ".join(f"{k}={_spelt(v)}" for k, v in values.items())))
        for name, values in settings.items()
    ]
    listed = table((), [(name, str(value)) for name, value in facts.items()], "What was run")
    return section(
        "What was run, and how to run it again",
        tag("p", note),
        tag("pre", verbatim(command)),
        tag("h3", "Settings"),
        tag("div", table(("method", "settings"), rows, "Settings"), class_="settings"),
        tag("h3", "Versions and machine"),
        tag("div", listed, class_="settings facts"),
    )


def _spelt(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def settings_used(run: Run) -> dict[str, object]:
    """A run's settings, with those that were left to the method."""
    return {**asked_of(run).settings, **metrics_of(run).chosen}


def network_of(run: Run) -> dict[str, object]:
    """What a run's network is and what it was trained on, as rows of a table."""
    header = read_header(run.model_path)
    model, spec = header["model"], QuantSpec.from_dict(header["quant"])
    size = "" if model["width"] == 1 else f" at {model['width']:g} of its width"
    bits = (
        "full precision"
        if spec.full_precision
        else f"bits of weights {spec.weights or 32}, of inputs {spec.activations or 32}, "
        f"in the first and last layer {spec.first_last_bits or 32} ({spec.quantizer})"
    )
    return {"data set": header["dataset"], "network": f"{model['name']}{size}; {bits}"}


def dates_of(infos: Iterable[RunInfo]) -> str:
    """When the first of some runs was begun, and the last finished, in a sentence."""
    dated = [(i.begun, i.finished) for i in infos if i.begun is not None and i.finished is not None]
    if not dated:
        return "When it was made is not on record."
    return f"Begun {min(dated)[0]}, finished {max(finished for _, finished in dated)}."


def again_command(
    command: str, file: Path, config: Mapping[str, object], names: Sequence[str]
) -> str:
    """The words that make a folder again; code of one's own has to be typed again, as `names`.

    >>> again_command("forget", Path("my runs/a.toml"), {"model": "nets:make"}, ["model"])
    "qunlearn forget --config 'my runs/a.toml' --model nets:make --out NEW"
    """
    own = [
        word
        for name in names
        if ":" in str(config.get(name, ""))
        for word in (f"--{name}", str(config[name]))
    ]
    return shlex.join(["qunlearn", command, "--config", str(file), *own, "--out", "NEW"])


def facts_of(info: RunInfo) -> dict[str, object]:
    """A run's versions and machine, as rows of a table."""
    facts = {"versions": info.versions, "machine": vars(info.machine)}
    return {
        key: ", ".join(f"{name} {value}" for name, value in values.items())
        for key, values in facts.items()
    }
