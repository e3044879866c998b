"""The page of a run that has forgotten."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from qunlearn.audit.bits import bits_audit_of
from qunlearn.data import Split
from qunlearn.errors import UserError
from qunlearn.methods.names import made_by
from qunlearn.metrics.gap import SCORES
from qunlearn.parts import detail_words, part_name
from qunlearn.report.audits import bits_section
from qunlearn.report.bars import gap_bars, runtime_bars
from qunlearn.report.drawing import Drawn
from qunlearn.report.gather import check_writable, keep, outputs_after, outputs_before
from qunlearn.report.heat import heat_map
from qunlearn.report.html import Safe, counted, join, page, section, table, tag
from qunlearn.report.judge import verdict_of
from qunlearn.report.outputs import AFTER, BEFORE, RETRAIN, Outputs, confidence_panel, ranked_panel
from qunlearn.report.sample import sample_panels
from qunlearn.report.sections import (
    MEANING,
    PLAIN,
    again_command,
    again_section,
    answers_section,
    cautions,
    confidence_section,
    conflict_section,
    dates_of,
    facts_of,
    network_of,
    opening,
    score_tiles,
    settings_used,
    tile,
    tiles,
)
from qunlearn.report.verdict import Verdict
from qunlearn.report.words import findings_words
from qunlearn.runs.data import split_of
from qunlearn.runs.evaluate import labels_of, scores_of
from qunlearn.runs.explain import conflict_of
from qunlearn.runs.metrics import RunMetrics, metrics_of
from qunlearn.runs.outputs import kept_outputs, outputs_of
from qunlearn.runs.provenance import asked_of
from qunlearn.runs.reference import check_reference, check_test, declared
from qunlearn.store.run import CONFIG, Run


def report_run(
    path: Path,
    *,
    reference: Path | None = None,
    data: Path | None = None,
    image: bool = False,
) -> Path:
    """Write the page of a run that has forgotten into its folder; returns where it is.

    Args:
        path: The folder that `qunlearn forget` wrote.
        reference: The run of Retrain on the same request, to compare with.
        data: Where the data is now, if it was moved: a folder or an .npz file.
        image: Show the image of one forgotten sample.
    """
    run = Run.open(path)
    metrics = metrics_of(run)
    if metrics.before is None:
        raise UserError(
            f"The run {str(path)!r} has forgotten nothing; name one that `qunlearn forget` wrote."
        )
    check_writable(path)
    split, asked = split_of(run, data), asked_of(run)
    check_test(split)
    retrain = None if reference is None else retrain_of(reference, run, split)
    if retrain is not None:
        scores = scores_of(outputs_of(run, split), split, retrain.outputs)
        metrics = replace(metrics, **vars(scores), declared=declared(retrain.run))
    metrics = replace(metrics, whole_classes=split.whole_classes)
    verdict = verdict_of(metrics)
    bars = _bars(run, metrics, retrain)
    sure, spread, one, words = _outputs(run, retrain, split, image)
    name = str(made_by(run.info.method, run.info.revision))
    conflicts = {}
    if any("conflict" in row for row in run.history):
        found = conflict_of(path)
        conflicts[name] = heat_map(name, found), found.words()
    whole = page(
        f"{path.name}: did the model forget?",
        _opening(run, name, metrics, split, verdict),
        section("The figures", _figures(metrics), _findings(metrics), _parts(metrics, split)),
        _bars_section(bars),
        confidence_section(
            sure, retrain is not None, any(f.title == BEFORE for f in sure), split.whole_classes
        ),
        answers_section(spread, one, words, retrain is not None),
        conflict_section(conflicts),
        bits_section(bits_audit_of(run)),
        again_section(
            again_command("forget", path / CONFIG, run.config, ("model", "method")),
            {name: settings_used(run)},
            {
                "forgotten from": asked.run,
                "seed": asked.settings.get("seed", 0),
                "seconds": f"{run.info.took('forgetting'):,.1f}",
                **network_of(run),
                **facts_of(run.info),
            },
            "This makes the run again in the folder NEW. The same seed, thread count, versions and "
            "processor give the same network bit for bit.",
        ),
    )
    drawn = [*bars, *sure, *spread, *one, *(figure for figure, _ in conflicts.values())]
    return keep(path, whole, drawn)


@dataclass(frozen=True)
class Retrain:
    """A Retrain, and what it answers on the parts of the run that it is compared with."""

    run: Run
    outputs: dict[str, Tensor]


def retrain_of(reference: Path, run: Run, split: Split) -> Retrain:
    """The reference, once it is clear that it is what the page will call it."""
    other = Run.open(reference)
    check_reference(run, split, other)
    outputs = kept_outputs(other, split)
    if outputs is None:
        raise UserError(
            f"The reference {str(reference)!r} has not kept its outputs on every part, or samples "
            "were erased since; make it again."
        )
    return Retrain(other, outputs)


def _opening(run: Run, name: str, metrics: RunMetrics, split: Split, verdict: Verdict) -> Safe:
    request = split.last
    assert request is not None  # or there would be no figures before
    detail = detail_words(request.detail)
    return opening(
        f"Run {run.path.name}",
        f"Method {name} on {split.data.name}. To be forgotten: "
        f"{counted(metrics.parts['forget'].samples, 'sample')} "
        f"({request.kind}{': ' if detail else ''}{detail}); kept: "
        f"{metrics.parts['retain'].samples:,}. {dates_of([run.info])}",
        "Did the model forget?",
        verdict,
        *_tiles(metrics, split),
        cautions(verdict),
    )


def _like(metrics: RunMetrics, split: Split) -> str:
    """The part that the forgotten one should look like: of a class that is gone, its own."""
    own = ("test_forgotten",) if split.whole_classes else ()
    parts: tuple[str, ...] = (*own, "held_out", "test")
    return next(part for part in parts if part in metrics.parts)


def _tiles(metrics: RunMetrics, split: Split) -> tuple[Safe, Safe]:
    """The key numbers: beside Retrain's, or else beside those of samples never seen."""
    before = metrics.before
    assert before is not None
    if metrics.reference is not None:
        title = "Before, after, and what a retrained model does"
        three = before.figures, metrics.figures, metrics.reference.figures
        return tag("h3", title), tiles(*score_tiles(*three))
    now, then = metrics.parts["forget"], before.parts["forget"]
    like = metrics.parts[_like(metrics, split)]
    shown = [
        tile(
            title,
            f"{scale * getattr(now, key):.1f}",
            "%",
            {
                "before": f"{scale * getattr(then, key):.1f} %",
                "on unseen ones": f"{scale * getattr(like, key):.1f} %",
            },
        )
        for title, key, scale in (
            (f"{PLAIN['FA']} (FA)", "accuracy", 1),
            ("Confidence in the truth on the forgotten samples", "confidence", 100),
        )
    ]
    shown += [
        tile(f"{PLAIN[s]} ({s})", f"{after:.1f}", "%", {"before": f"{earlier:.1f} %"})
        for s, after, earlier in (("RA", metrics.RA, before.RA), ("TA", metrics.TA, before.TA))
    ]
    return tag("h3", "Before and after, beside samples it never saw"), tiles(*shown)


def _figures(metrics: RunMetrics) -> Safe:
    assert metrics.before is not None
    models = {"before forgetting": metrics.before.figures, "after": metrics.figures}
    if metrics.reference is not None:
        name = "Retrain, declared" if metrics.declared is not None else "Retrain"
        models |= {name: metrics.reference.figures, "gap": metrics.gaps}
    rows = [[name, *(f"{each[s]:.2f}" for s in SCORES)] for name, each in models.items()]
    head = ["in percent", *SCORES]
    if metrics.reference is not None:
        head.append("AG")
        rows = [[*row, ""] for row in rows[:-1]] + [[*rows[-1], f"{metrics.AG:.2f}"]]
    return join(
        tag("p", MEANING, class_="note"),
        table(head, rows, "The four figures", ["aside", "best", "", ""][: len(rows)]),
    )


def _findings(metrics: RunMetrics) -> Safe:
    """What is known beside the scores: copies, retired samples, a declared Retrain."""
    return join(*(tag("p", words) for words in findings_words(metrics)))


def _parts(metrics: RunMetrics, split: Split) -> Safe:
    """Each part of the data, before and after."""
    then = {} if metrics.before is None else metrics.before.parts
    rows = []
    for part, now in metrics.parts.items():
        old = then.get(part)
        cells: list[object] = [join(part_name(part), tag("small", counted(now.samples, "sample")))]
        for key, scale, unit in (
            ("accuracy", 1, " %"),
            ("confidence", 100, " %"),
            ("entropy", 1, ""),
        ):
            was = tag("small", f"before {scale * getattr(old, key):.2f}{unit}") if old else ""
            cells.append(join(f"{scale * getattr(now, key):.2f}{unit}", was))
        rows.append(cells)
    head = ["part", "right", "confidence", "entropy"]
    return join(
        tag("h3", "Part by part"),
        tag(
            "p",
            "The share of right answers, the mean confidence in the true class, and how unsure the "
            "answers are (entropy). Good: the forgotten part is like the part "
            f"“{part_name(_like(metrics, split))}”, which the model never saw, and the others are "
            "as before.",
            class_="note",
        ),
        table(head, rows, "Part by part"),
    )


def _bars(run: Run, metrics: RunMetrics, retrain: Retrain | None) -> list[Drawn]:
    if retrain is None:
        return []
    name = str(made_by(run.info.method, run.info.revision))
    bars = [gap_bars({name: metrics.gaps})]
    if metrics.declared is None:  # or nobody knows how long it took
        share = run.info.took("forgetting") / retrain.run.info.took("forgetting")
        bars.append(runtime_bars({name: 100 * share}))
    return bars


def _bars_section(bars: list[Drawn]) -> Safe:
    if not bars:
        return Safe("")
    timed = len(bars) > 1
    return section(
        "How far from Retrain" + (", and how long it took" if timed else ""),
        tag(
            "p",
            "The gaps of the four figures to Retrain's, laid end to end"
            + (", and the time as a share of Retrain's. Short is good in both." if timed else "")
            + ("" if timed else ". Short is good."),
        ),
        *(figure.html() for figure in bars),
    )


def _outputs(
    run: Run, retrain: Retrain | None, split: Split, image: bool
) -> tuple[list[Drawn], list[Drawn], list[Drawn], str]:
    """The figures made from outputs: confidence, the spread of answers, that of one, its words."""
    labels = labels_of(split)
    after, before = outputs_after(run, labels), outputs_before(run, split)
    mark = None if retrain is None else Outputs.of(retrain.outputs, labels)
    both = {BEFORE: before, AFTER: after}
    sure = [confidence_panel(name, own, mark) for name, own in both.items() if own is not None]
    own = {} if after is None else {AFTER: after}
    answers = {BEFORE: before, RETRAIN: mark, **own}
    spread = [ranked_panel("on the forgotten samples", answers)] if own else []
    return sure, spread, *sample_panels(split, own, before, mark, image=image)
