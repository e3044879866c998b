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
from qunlearn.evidence.clean import config_without_request
from qunlearn.evidence.commitment import (
    commitment_of,
    proofs_for,
    save_commitment,
    write_proofs,
)
from qunlearn.evidence.keys import SigningKey, read_signer
from qunlearn.evidence.merkle import Commitment
from qunlearn.evidence.record import PAGE, RECORD, Record, read_record, sign
from qunlearn.evidence.statement import (
    Committed,
    Digest,
    Erased,
    Predicate,
    Previous,
    Request,
    Signer,
    Statement,
    Subject,
    Test,
)
from qunlearn.runs.lines import RequestLine
from qunlearn.runs.provenance import lines_of, request_of
from qunlearn.store import toml
from qunlearn.store.files import sha256, write_bytes, write_text
from qunlearn.store.layout import AUDIT, CONFIG, METRICS, MODEL, RECORDS
from qunlearn.store.lock import locked
from qunlearn.store.place import named
from qunlearn.store.records import archive
from qunlearn.store.run import Run


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


@dataclass(frozen=True)
class Certified:
    """What `certify` wrote: the record as it was read back, and the proof of each id asked for."""

    record: Record
    proofs: Mapping[str, Path]


def certify(
    run: Run,
    key: Path,
    findings: Findings,
    page: Callable[[Predicate, Sequence[Subject]], str],
    *,
    onnx: Sequence[Path] = (),
    proof_for: Sequence[str] = (),
) -> Certified:
    """Write the signed record of a run, its page, and proofs; nothing if anything is wrong.

    Args:
        run: A run that has forgotten.
        key: The private key.
        findings: What was measured.
        page: Makes the printable page.
        onnx: Exported files that the record is to cover, beside those in the folder.
        proof_for: Ids whose requesters are to get a proof.
    """
    if run.info.method is None and not manifest.parse(run.split).requests:
        raise UserError(
            f"The run {str(run.path)!r} has forgotten nothing, so that there is nothing to "
            "certify; name one that `qunlearn forget` wrote."
        )
    signing = read_signer(key)
    run.check_model()
    with named(run.path), locked(run.path):
        commitment = commitment_of(run)
        proofs = proofs_for(run, commitment, proof_for)
        predicate = _predicate(run, findings, commitment, signing, newest(run.path.parent))
        subjects = _subjects(run, onnx)
        text = page(predicate, subjects)
        subjects.append(Subject(PAGE, Digest(hashlib.sha256(text.encode()).hexdigest())))
        envelope = sign(Statement(tuple(subjects), predicate), signing.signer)
        save_commitment(run, commitment)
        written = write_proofs(run, proofs)
        old = run.path / RECORD
        if old.is_file():
            archive(run.path, (RECORD, PAGE), RECORDS, sha256(old)[:16])
        write_text(run.path / PAGE, text)
        write_bytes(run.path / RECORD, envelope.text().encode())  # last: with it, all is there
    return Certified(read_record(run.path / RECORD), written)


def _predicate(
    run: Run, findings: Findings, commitment: Commitment, key: SigningKey, before: Record | None
) -> Predicate:
    names = {
        outcome: tuple(test.name for test in findings.tests if test.outcome == outcome)
        for outcome in ("passed", "warned", "failed")
    }
    info, config = run.info, run.config
    method, settings = ("none", {})
    if info.method is not None and "settings" in config:
        request = request_of(run)
        method, settings = f"{request.method}, revision {info.revision}", dict(request.settings)
    place = None if before is None else before.path.relative_to(run.path.parent).as_posix()
    return Predicate(
        result=_result(names),
        configuration=(Subject(CONFIG, Digest(_settings_digest(run))),),
        passedTests=names["passed"],
        warnedTests=names["warned"],
        failedTests=names["failed"],
        tests=findings.tests,
        request=_request(run, commitment),
        method=method,
        settings=settings,
        erased=findings.erased,
        limits=findings.limits,
        previous=None if before is None or place is None else Previous(before.sha256, place),
        signer=Signer(key.key_id, key.pem),
        made=utc(time.time()),
        software=f"qunlearn {version('qunlearn')}",
    )


def _settings_digest(run: Run) -> str:
    """The digest of the settings as they are after `erase`: no guess at a rule can be tested."""
    return hashlib.sha256(toml.dumps(config_without_request(run)).encode()).hexdigest()


def _result(names: Mapping[str, tuple[str, ...]]) -> Literal["PASSED", "WARNED", "FAILED"]:
    if names["failed"]:
        return "FAILED"
    return "WARNED" if names["warned"] else "PASSED"


def _request(run: Run, commitment: Commitment) -> Request:
    samples = len(commitment.leaves)
    lines = lines_of(run) or (RequestLine(samples),)
    committed = Committed(commitment.root, samples)
    return Request(lines, samples, run.info.finished or "", committed)


def _subjects(run: Run, onnx: Sequence[Path]) -> list[Subject]:
    inside = [run.path / name for name in (MODEL, METRICS, AUDIT)]
    files = [path for path in (*inside, *sorted(run.path.glob("*.onnx"))) if path.is_file()]
    files += [path for path in onnx if path.resolve() not in {file.resolve() for file in files}]
    names = [path.name for path in files]
    if len(set(names)) < len(names):
        raise UserError("Two ONNX files have one name; rename one of them.")
    return [Subject(path.name, Digest(sha256(path))) for path in files]


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
