"""The signed record in words: its tests, its limits, its printable page, and what a check found."""

from __future__ import annotations

from qunlearn.audit.bits import bits_audit_of
from qunlearn.audit.bits import verdict as bits_verdict
from qunlearn.evidence.certify import Findings
from qunlearn.evidence.erased import erased_of
from qunlearn.evidence.record import Erased, Outcome, Predicate, Test
from qunlearn.evidence.verify import Check, Verification
from qunlearn.metrics.gap import half_width
from qunlearn.parts import LOST
from qunlearn.report.audits import bits_words
from qunlearn.report.erasure import left_words
from qunlearn.report.html import render
from qunlearn.report.judge import resurfaced, verdict_of
from qunlearn.report.target import target_words
from qunlearn.report.verdict import HARM, PROOF
from qunlearn.runs.metrics import RunMetrics, metrics_of
from qunlearn.store.run import Run

LEVELS: dict[str, Outcome] = {"yes": "passed", "mostly": "warned", "unsure": "warned"}
BITS: dict[str, Outcome] = {"stays": "passed", "returns": "failed", "before": "failed"}

LIMITS = (
    PROOF,
    "The record shows what the signer measured and did on these files. It does not show that no "
    "other copy of the data or of an earlier network exists.",
    "Forgetting by any method but Retrain is approximate, and carries no differential-privacy "
    "guarantee. Whether it satisfies a law is a legal question.",
    "All dates are those of the signer's clock; no third party has attested them.",
)


def findings_of(run: Run) -> Findings:
    """Each measurement and audit of a run as a test, and the limits of all of them."""
    metrics = metrics_of(run)
    tests = [*_measured(metrics, run.info.method), *_audited(run)]
    done = erased_of(run.path)
    erased = None
    if done is not None:
        left = tuple(left_words(each) for each in done.left)
        erased = Erased(done.completed, done.removed, done.cleaned, left)
    if run.info.method != "retrain":
        return Findings(tuple(tests), LIMITS, erased)
    exact = "Trained anew without the samples; input normalisation may still include them."
    return Findings(tuple(tests), (*LIMITS[:2], exact, LIMITS[3]), erased)


def _measured(metrics: RunMetrics, method: str | None) -> list[Test]:
    before = metrics.before
    if before is None:  # samples were only retired
        meaning = "The samples were not trained on; they are no longer measured on."
        return [Test("samples retired", "passed", meaning=meaning)]
    verdict = verdict_of(metrics, method)
    tests = [Test("verdict", LEVELS.get(verdict.level, "failed"), unit="", meaning=verdict.answer)]
    if (target := metrics.calibration) is not None:
        outcome: Outcome = "passed" if target.met else "failed"
        words = target_words(target)
        tests.append(Test("target", outcome, target.reached, target.chance, meaning=words))
    parts = {"FA": "forget", "RA": "retain", "TA": "test"}
    names = {"FA": "forgotten", "RA": "retained", "TA": "test"}
    for score, part in parts.items():
        if part not in metrics.parts or part not in before.parts:
            continue
        now, then = metrics.parts[part], before.parts[part]
        fall = then.accuracy - now.accuracy
        outcome = "passed"
        if score != "FA" and fall > HARM:
            outcome = "failed" if fall > LOST else "warned"
        margin = half_width(now.accuracy, now.samples)
        words = f"Accuracy on the {names[score]} samples; before forgetting {then.accuracy:.2f} %."
        tests.append(Test(f"accuracy on {names[score]}", outcome, now.accuracy, margin, "%", words))
    if metrics.complete and metrics.MIA is not None:
        margin = half_width(metrics.MIA, metrics.parts["forget"].samples)
        words = "Forgotten samples that a membership attack takes for unseen."
        tests.append(Test("membership attack", "passed", metrics.MIA, margin, "%", words))
    back = resurfaced(metrics, before)
    words = " ".join(map(str, back)) or "No samples of earlier requests came back."
    tests.append(Test("earlier requests", "failed" if back else "passed", unit="", meaning=words))
    return tests


def _audited(run: Run) -> list[Test]:
    audit = bits_audit_of(run)
    if audit is None:
        return []
    found = bits_verdict(audit)
    outcome = BITS.get(found.state, "warned")
    chance = found.chance or None
    words = bits_words(audit)
    return [Test("audit: other bit widths", outcome, found.points, chance, "points", words)]


def record_page(predicate: Predicate) -> str:
    """The printable page of a record."""
    figures = [(test, figure_words(test)) for test in predicate.tests]
    return render("record.html.j2", record=predicate, figures=figures)


def figure_words(test: Test) -> str:
    """A test's figure with its margin of error.

    >>> figure_words(Test("a", "passed", 12.345, 1.0)), figure_words(Test("b", "passed"))
    ('12.35 ± 1.00 %', '')
    """
    if test.figure is None:
        return ""
    margin = "" if test.interval is None else f" ± {test.interval:.2f}"
    return f"{test.figure:.2f}{margin} {test.unit}".strip()


def check_words(check: Check) -> str:
    """What was found by one check, in a sentence."""
    name = check.name
    match check.what, check.state, check.reason:
        case "signature", "proven", key:
            return f"The record is unchanged since it was signed with the key {key[:16]}."
        case "signature", _, key:
            return f"The signature is not one of the key {key[:16]}, or the record was changed."
        case "signer", "proven", _:
            return f"The key is the one in {name}, which you named."
        case "signer", _, _:
            return (
                f"That the key {name[:16]} is the officer's: compare it with one that you trust "
                "(--public-key)."
            )
        case "validity", "failed", made:
            return f"The record says it was made {made}, when the key was not valid ({name})."
        case "validity", _, made:
            return f"That it was made {made}, while the key was valid ({name}): the signer's clock."
        case "file", "proven", _:
            return f"{name} is the very file that the record is about."
        case "file", "claimed", _:
            return f"The digest of {name}, which is not beside the record."
        case "file", _, "changed":
            return f"{name} is not the file that the record is about: its digest differs."
        case "file", _, _:
            return f"{name} is none of the files that the record is about."
        case "chain", "proven", _:
            return f"The earlier record {name} is unchanged, and signed with the same key."
        case "chain", "claimed", "absent":
            return f"That there was an earlier record, {name}, which is not at hand."
        case "chain", "claimed", _:
            return f"The earlier record {name} is unchanged; it was signed with another key."
        case "chain", _, "changed":
            return f"The earlier record {name} was changed or replaced."
        case "chain", _, _:
            return f"The earlier record {name} has no valid signature."
        case "proof", "proven", _:
            return f"The id {name!r} is in the request that the record is about."
        case _:
            return f"The proof in {check.reason} does not show that {name!r} is in the request."


def verification_words(found: Verification) -> list[str]:
    """What a check found, a line each: what is proven, what is claimed, what is wrong."""
    record = found.record.predicate
    head = "The record verifies." if found.valid else "The record does NOT verify."
    lines = [head]
    for state, title in (("failed", "Wrong"), ("proven", "Proven"), ("claimed", "Only claimed")):
        sentences = [check_words(check) for check in found.checks if check.state == state]
        if state == "claimed":
            sentences += [
                f"The signer's statements: {record.request.samples:,} samples were forgotten or "
                f"retired by {record.request.completed}; result {record.result}.",
                *record.limits,
            ]
        if sentences:
            lines += [f"{title}:", *(f"  - {sentence}" for sentence in sentences)]
    return lines
