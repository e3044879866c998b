"""The page of a run that has forgotten."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from qunlearn.audit import finding_of
from qunlearn.audit.bits import BitsAudit
from qunlearn.data import Split
from qunlearn.errors import UserError
from qunlearn.methods.names import made_by
from qunlearn.report.audit_section import audit_section
from qunlearn.report.audits import BitsFindings
from qunlearn.report.bars import gap_bars, runtime_bars
from qunlearn.report.drawing import Drawn
from qunlearn.report.gather import check_writable, keep, outputs_after, outputs_before
from qunlearn.report.html import render
from qunlearn.report.judge import verdict_of
from qunlearn.report.outputs import AFTER, BEFORE, RETRAIN, Outputs, confidence_panel, ranked_panel
from qunlearn.report.sample import sample_panels
from qunlearn.report.sections import (
    OutputFigures,
    again_command,
    conflict_figures,
    dates_of,
    facts_of,
    network_of,
    request_words,
    settings_used,
)
from qunlearn.report.summary import request_answer_of, run_answers
from qunlearn.report.words import findings_words
from qunlearn.runs.data import split_of
from qunlearn.runs.evaluate import labels_of, scores_of
from qunlearn.runs.metrics import RunMetrics, metrics_of
from qunlearn.runs.outputs import outputs_of, stored_outputs
from qunlearn.runs.provenance import lines_of, request_of
from qunlearn.runs.reference import check_reference, check_test, declared
from qunlearn.store.layout import CONFIG
from qunlearn.store.run import Run


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
    split, recorded = split_of(run, data), request_of(run)
    check_test(split)
    retrain = None if reference is None else retrain_of(reference, run, split)
    if retrain is not None:
        scores = scores_of(outputs_of(run, split), split, retrain.outputs)
        metrics = replace(metrics, **vars(scores), declared=declared(retrain.run))
    metrics = replace(metrics, whole_classes=split.whole_classes)
    request, audit = split.last, finding_of(run, "bits")
    assert request is not None  # or there would be no figures before
    name = str(made_by(run.info.method, run.info.revision))
    bars = _bars(run, name, metrics, retrain)
    outputs = _outputs(run, retrain, split, image)
    conflicts = conflict_figures({name: run})
    verdict = verdict_of(metrics, run.info.method)
    request_answer = request_answer_of(
        request_words(metrics.parts["forget"].samples, request.kind, request.detail),
        len(split.retain),
        dates_of([run.info]),
        received=next((line.received for line in lines_of(run) if line.received), None),
        took=f"Forgetting took {run.info.took('forgetting'):,.1f} seconds.",
    )
    audited = audit_section(run)
    page = render(
        "run.html.j2",
        folder=path.name,
        method=name,
        dataset=split.data.name,
        answers=[*run_answers(metrics, verdict), request_answer],
        verdict=verdict,
        metrics=metrics,
        like=_like(metrics),
        findings=findings_words(metrics),
        bars=bars,
        outputs=outputs,
        conflicts=conflicts,
        audited=audited,
        bits=BitsFindings.of(audit) if isinstance(audit, BitsAudit) else None,
        command=again_command("forget", path / CONFIG, run.config, ("model", "method")),
        settings={name: settings_used(run)},
        facts={
            "forgotten from": recorded.run,
            "seed": recorded.settings.get("seed", 0),
            "seconds": f"{run.info.took('forgetting'):,.1f}",
            **network_of(run),
            **facts_of(run.info),
        },
    )
    figures = [*bars, *outputs.drawn, *(figure for figure, _ in conflicts)]
    return keep(path, page, [*figures, *(audited.drawn if audited else ())])


@dataclass(frozen=True)
class Retrain:
    """A Retrain, and what it answers on the parts of the run that it is compared with."""

    run: Run
    outputs: dict[str, Tensor]


def retrain_of(reference: Path, run: Run, split: Split) -> Retrain:
    """The reference, once it is clear that it is what the page will call it."""
    retrain = Run.open(reference)
    check_reference(run, split, retrain)
    outputs = stored_outputs(retrain, split)
    if outputs is None:
        raise UserError(
            f"The reference {str(reference)!r} does not store outputs on every part, or samples "
            "were erased since; make it again."
        )
    return Retrain(retrain, outputs)


def _like(metrics: RunMetrics) -> str:
    """The part that the forgotten one should look like: of a class that is gone, its own."""
    of_class = ("test_forgotten",) if metrics.whole_classes else ()
    parts: tuple[str, ...] = (*of_class, "held_out", "test")
    return next(part for part in parts if part in metrics.parts)


def _bars(run: Run, name: str, metrics: RunMetrics, retrain: Retrain | None) -> list[Drawn]:
    if retrain is None:
        return []
    bars = [gap_bars({name: metrics.gaps})]
    if metrics.declared is None:  # or nobody knows how long it took
        share = run.info.took("forgetting") / retrain.run.info.took("forgetting")
        bars.append(runtime_bars({name: 100 * share}))
    return bars


def _outputs(run: Run, retrain: Retrain | None, split: Split, image: bool) -> OutputFigures:
    labels = labels_of(split)
    after, before = outputs_after(run, labels), outputs_before(run, split)
    retrained = None if retrain is None else Outputs.of(retrain.outputs, labels)
    by_name = {BEFORE: before, AFTER: after}
    models = {} if after is None else {AFTER: after}
    answers = {BEFORE: before, RETRAIN: retrained, **models}
    one, words = sample_panels(split, models, before, retrained, image=image)
    return OutputFigures(
        confidence=[confidence_panel(n, o, retrained) for n, o in by_name.items() if o is not None],
        spread=[ranked_panel("on the forgotten samples", answers)] if models else [],
        one=one,
        words=words,
        before=before is not None,
        retrain=retrain is not None,
        whole_classes=split.whole_classes,
    )
