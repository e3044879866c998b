"""From a run that has forgotten to a signed record."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from qunlearn.data import manifest
from qunlearn.dates import utc
from qunlearn.errors import UserError
from qunlearn.evidence.commitment import commitment_of
from qunlearn.evidence.keys import SigningKey, read_signer
from qunlearn.evidence.record import (
    PAGE,
    RECORD,
    Committed,
    Digest,
    Erased,
    Predicate,
    Previous,
    Record,
    Request,
    Signer,
    Statement,
    Subject,
    Test,
    read_record,
    sign,
)
from qunlearn.runs.lines import RequestLine
from qunlearn.runs.provenance import asked_of, lines_of
from qunlearn.store.files import sha256, write_bytes, write_text
from qunlearn.store.lock import locked
from qunlearn.store.place import named
from qunlearn.store.records import archive
from qunlearn.store.run import AUDIT, CONFIG, METRICS, MODEL, RECORDS, Run


@dataclass(frozen=True)
class Findings:
    """What others found out about a run, and the record is to hold.

    Attributes:
        tests: Each measurement and audit.
        limits: What the record does not say.
        erased: What was erased; None if nothing was.
    """

    tests: tuple[Test, ...]
    limits: tuple[str, ...]
    erased: Erased | None = None


def certify(
    run: Run,
    key: Path,
    findings: Findings,
    page: Callable[[Predicate], str],
    onnx: Sequence[Path] = (),
) -> Record:
    """Write the signed record of a run, and its page; returns the record as it was read back.

    Args:
        run: A run that has forgotten.
        key: The private key.
        findings: What was measured.
        page: Makes the printable page.
        onnx: Exported files that the record is to cover, beside those in the folder.
    """
    if run.info.method is None and not manifest.parse(run.split).requests:
        raise UserError(
            f"The run {str(run.path)!r} has forgotten nothing, so that there is nothing to "
            "certify; name one that `qunlearn forget` wrote."
        )
    signing = read_signer(key)
    run.check_model()
    with named(run.path), locked(run.path):
        before = newest(run.path.parent)
        predicate = _predicate(run, findings, signing, before)
        text = page(predicate)
        subjects = [*_subjects(run, onnx), _subject(PAGE, text.encode())]
        envelope = sign(Statement(tuple(subjects), predicate), signing.signer)
        old = run.path / RECORD
        if old.is_file():
            archive(run.path, (RECORD, PAGE), RECORDS, sha256(old)[:16])
        write_text(run.path / PAGE, text)
        write_bytes(run.path / RECORD, envelope.text().encode())  # last: with it, all is there
    return read_record(run.path / RECORD)


def _predicate(run: Run, findings: Findings, key: SigningKey, before: Record | None) -> Predicate:
    names = {
        outcome: tuple(test.name for test in findings.tests if test.outcome == outcome)
        for outcome in ("passed", "warned", "failed")
    }
    info, config = run.info, run.config
    method, settings = ("none", {})
    if info.method is not None and "settings" in config:
        asked = asked_of(run)
        method, settings = f"{asked.method}, revision {info.revision}", dict(asked.settings)
    place = None if before is None else before.path.relative_to(run.path.parent).as_posix()
    return Predicate(
        result=_result(names),
        configuration=(Subject(CONFIG, Digest(sha256(run.path / CONFIG))),),
        passedTests=names["passed"],
        warnedTests=names["warned"],
        failedTests=names["failed"],
        tests=findings.tests,
        request=_request(run),
        method=method,
        settings=settings,
        erased=findings.erased,
        limits=findings.limits,
        previous=None if before is None or place is None else Previous(before.sha256, place),
        signer=Signer(key.key_id, key.pem),
        made=utc(time.time()),
        software=f"qunlearn {version('qunlearn')}",
    )


def _result(names: Mapping[str, tuple[str, ...]]) -> Literal["PASSED", "WARNED", "FAILED"]:
    if names["failed"]:
        return "FAILED"
    return "WARNED" if names["warned"] else "PASSED"


def _request(run: Run) -> Request:
    commitment = commitment_of(run)
    samples = len(commitment.leaves)
    lines = lines_of(run) or (RequestLine(samples),)
    committed = Committed(commitment.root, samples)
    return Request(lines, samples, run.info.finished or "", committed)


def _subjects(run: Run, onnx: Sequence[Path]) -> Iterator[Subject]:
    for name in (MODEL, METRICS, AUDIT):
        if (run.path / name).is_file():
            yield Subject(name, Digest(sha256(run.path / name)))
    files = {path.name: path for path in (*sorted(run.path.glob("*.onnx")), *onnx)}
    if len({path.resolve() for path in onnx} - {path.resolve() for path in files.values()}):
        raise UserError("Two ONNX files have one name; rename one of them.")
    for name, path in files.items():
        yield Subject(name, Digest(sha256(path)))


def _subject(name: str, content: bytes) -> Subject:
    return Subject(name, Digest(hashlib.sha256(content).hexdigest()))


def records_below(folder: Path) -> Iterator[Path]:
    """The records of the run folders in a folder, and the earlier ones kept in them."""
    for pattern in (f"*/{RECORD}", f"*/{RECORDS}/*/{RECORD}"):
        for path in sorted(folder.glob(pattern)):
            if not any(p.is_symlink() for p in (path, *path.parents) if folder in p.parents):
                yield path


def newest(folder: Path) -> Record | None:
    """The record that was made last, of those in a folder's runs; damaged ones are refused."""
    records = [read_record(path) for path in records_below(folder)]
    linked = {r.predicate.previous.sha256 for r in records if r.predicate.previous is not None}
    last = [record for record in records if record.sha256 not in linked] or records
    return max(last, key=lambda record: record.predicate.made, default=None)
