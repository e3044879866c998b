"""The signed record in words: its tests, its limits, and its printable page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qunlearn.audit import AuditRow, rows_of
from qunlearn.audit.row import Figure
from qunlearn.evidence.certify import Findings
from qunlearn.evidence.erased import erased_of
from qunlearn.evidence.statement import Erased, Outcome, Predicate, Subject, Test
from qunlearn.metrics import Scores
from qunlearn.metrics.gap import wilson
from qunlearn.metrics.membership import least_accuracy
from qunlearn.parts import LOST, part_name
from qunlearn.report.audits import reason_words, value_words
from qunlearn.report.erasure import left_words
from qunlearn.report.html import counted, render
from qunlearn.report.judge import resurfaced, verdict_of
from qunlearn.report.relearning import relearning_lead, relearning_words
from qunlearn.report.target import target_words
from qunlearn.report.verdict import EXACT, HARM, PROOF
from qunlearn.runs.metrics import RunMetrics, metrics_of
from qunlearn.store.run import Run

LEVELS: dict[str, Outcome] = {"yes": "passed", "mostly": "warned", "unsure": "warned"}
AUDITS: dict[str, Outcome] = {"pass": "passed", "fail": "failed", "cannot be told": "warned"}

LIMITS = (
    PROOF,
    "The record shows what the signer measured and did on these files. It does not show that no "
    "other copy of the data or of an earlier network exists.",
    "Forgetting by any method but Retrain is approximate, and carries no differential-privacy "
    "guarantee. Whether it satisfies a law is a legal question.",
    "All dates are those of the signer's clock; no third party has attested them.",
)
FEWEST = 10
MEANS_OMITTED = (
    f"Means over fewer than {FEWEST} samples are left out: whoever has the network could tell by "
    "them which samples these are."
)


def findings_of(run: Run) -> Findings:
    """Each measurement and audit of a run as a test, and the limits of all of them."""
    tests = (*_measured(metrics_of(run), run.info.method), *_audited(run))
    limits = (*LIMITS[:2], EXACT, LIMITS[3]) if run.info.method == "retrain" else LIMITS
    erased = erased_of(run.path)
    if erased is None:
        return Findings(tests, limits)
    left = tuple(dict.fromkeys(left_words(each, named=False) for each in erased.left))
    return Findings(tests, limits, Erased(erased.completed, erased.removed, erased.cleaned, left))


def _measured(metrics: RunMetrics, method: str | None) -> list[Test]:
    before = metrics.before
    if before is None:  # samples were only retired
        meaning = "The samples were not trained on; they are no longer measured on."
        return [Test("samples retired", "passed", unit="", meaning=meaning)]
    verdict, too_few = verdict_of(metrics, method), metrics.parts["forget"].samples < FEWEST
    outcome = LEVELS.get(verdict.level, "failed")
    tests = [Test("verdict", outcome, unit="", meaning=verdict.answer)]
    if (target := metrics.calibration) is not None:
        met: Outcome = "passed" if target.met else "failed"
        words = f"Target {'reached' if target.met else 'missed'}. {MEANS_OMITTED}"
        words, reached = (words, None) if too_few else (target_words(target), target.reached)
        tests.append(Test("target", met, reached, meaning=words))
    tests += _accuracies(metrics, before, outcome)
    if metrics.complete and metrics.MIA is not None:
        tests.append(_membership(metrics, outcome))
    if (probe := metrics.relearning) is not None:
        deep: Outcome = "passed" if probe.deep else "warned"
        words = f"{relearning_lead(probe)} {MEANS_OMITTED}" if too_few else relearning_words(probe)
        returned = None if too_few else probe.returned
        tests.append(Test("relearning", deep, returned, unit="points", meaning=words))
    if any(part.startswith("forget_") for part in metrics.parts):
        back = resurfaced(metrics, before)
        sentences = [
            f"Came back: the samples {part_name(each.part)}. {MEANS_OMITTED}"
            if metrics.parts[each.part].samples < FEWEST
            else str(each)
            for each in back
        ]
        words = " ".join(sentences) or "No samples of earlier requests came back."
        outcome = "failed" if back else "passed"
        tests.append(Test("earlier requests", outcome, unit="", meaning=words))
    return tests


def _accuracies(metrics: RunMetrics, before: Scores, verdict: Outcome) -> list[Test]:
    """Accuracy on each part; on the forgotten one neither high nor low is good in itself."""
    tests = []
    for part, name in (("forget", "forgotten"), ("retain", "retained"), ("test", "test")):
        if part not in metrics.parts or part not in before.parts:
            continue
        now, then = metrics.parts[part], before.parts[part]
        loss = then.accuracy - now.accuracy
        outcome: Outcome = "passed"
        if part == "forget":
            outcome = verdict
        elif loss > HARM:
            outcome = "failed" if loss > LOST else "warned"
        words = f"Accuracy on the {name} samples; before forgetting {then.accuracy:.2f} %."
        if part == "forget":
            words += " Judged by the verdict: neither a high nor a low value is good in itself."
        interval = wilson(now.accuracy, now.samples)
        tests.append(Test(f"accuracy on {name}", outcome, now.accuracy, interval, "%", words))
    return tests


def _membership(metrics: RunMetrics, verdict: Outcome) -> Test:
    """The share of forgotten samples taken for unseen; an attack that guesses shows nothing."""
    assert metrics.MIA is not None
    parts, accuracy = metrics.parts, metrics.attack_accuracy
    needed = least_accuracy(min(parts["retain"].samples, parts["test"].samples))
    words = "Forgotten samples that a membership attack takes for unseen."
    if accuracy is not None and accuracy < needed:
        verdict = "warned"
        words += f" It shows nothing here: the attack is right in {accuracy:.1f} %, as by guessing."
    interval = wilson(metrics.MIA, parts["forget"].samples)
    return Test("membership attack", verdict, metrics.MIA, interval, "%", words)


def _audited(run: Run) -> list[Test]:
    rows = rows_of(run)
    unread = run.audits.keys() - {row.attack for row in rows}
    words = "This version of qunlearn does not know the audit, and finds no verdict of it."
    return [
        *map(audit_test, rows),
        *(Test(f"audit: {name}", "warned", unit="", meaning=words) for name in sorted(unread)),
    ]


def audit_test(row: AuditRow) -> Test:
    """An audit as a test: its main figure, and all of them in words.

    >>> row = AuditRow("relearn", ("network",), (Figure("AUC", 0.7, retrain=0.5),), "fail", "high")
    >>> audit_test(row).meaning
    'AUC: 0.700, a Retrain: 0.500. Needed: network. High.'
    """
    main = row.figures[0] if row.figures else Figure("", None)
    sentences = []
    for each in row.figures:
        if each.value is not None:
            retrain = value_words(replace(each, value=each.retrain))
            beside = f", a Retrain: {retrain}" if retrain else ""
            sentences.append(f"{each.name}: {value_words(each)}{beside}")
    sentences += [f"Needed: {', '.join(row.needs)}"] if row.needs else []
    reason = reason_words(row)
    sentences += [reason[0].upper() + reason[1:]] if reason else []
    words = " ".join(f"{text.rstrip('.')}." for text in sentences)
    ends = None if main.interval is None else (main.interval.low, main.interval.high)
    return Test(f"audit: {row.attack}", AUDITS[row.verdict], main.value, ends, main.unit, words)


def record_page(predicate: Predicate, subjects: Sequence[Subject]) -> str:
    """The printable page of a record."""
    figures = [(test, figure_words(test), interval_words(test)) for test in predicate.tests]
    counts = [counted(len(predicate.tests), "test")]
    for words, names in (
        ("passed", predicate.passedTests),
        ("with a warning", predicate.warnedTests),
        ("failed", predicate.failedTests),
    ):
        counts += [f"{len(names)} {words}"] if names else []
    summary = f"{counts[0]}: {', '.join(counts[1:])}."
    return render(
        "record.html.j2", record=predicate, subjects=subjects, figures=figures, summary=summary
    )


def figure_words(test: Test) -> str:
    """A test's figure with its unit.

    >>> figure_words(Test("a", "passed", 12.345)), figure_words(Test("b", "passed"))
    ('12.35 %', '')
    """
    return "" if test.figure is None else f"{test.figure:.2f} {test.unit}".strip()


def interval_words(test: Test) -> str:
    """The interval of a test's figure.

    >>> interval_words(Test("a", "passed", 12.345, (10.0, 15.5)))
    '10.00 to 15.50'
    """
    return "" if test.interval is None else "{:.2f} to {:.2f}".format(*test.interval)
