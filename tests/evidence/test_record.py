"""Signed records: made, verified with and without qunlearn, and forged."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from qunlearn.errors import UserError
from qunlearn.evidence.certify import certify
from qunlearn.evidence.keys import new_keys, read_signer
from qunlearn.evidence.record import read_record
from qunlearn.evidence.verify import verify
from qunlearn.report.record import findings_of, record_page
from qunlearn.report.verification import verification_words
from qunlearn.store.run import Run

FORGERIES = 1000


def certified(run, key, **more):
    opened = Run.open(run)
    return certify(opened, key, findings_of(opened), record_page, **more).record


def test_a_request_is_certified_verified_and_proven(qunlearn, tree):
    assert qunlearn("keys", "new", tree / "officer.pem")[0] == 0
    assert (tree / "officer.pem").stat().st_mode & 0o777 == 0o600
    (tree / "model.onnx").write_bytes(b"exported")
    name = json.loads((tree / "forgotten" / "split.json").read_text())["requests"][0]["ids"][0]
    words = ("--onnx", tree / "model.onnx", "--proof-for", name)
    code, out, err = qunlearn("certify", tree / "forgotten", "--key", tree / "officer.pem", *words)
    assert code == 0, err
    record = tree / "forgotten" / "forgetting.intoto.json"
    key = ("--public-key", tree / "officer.pub")
    code, out, err = qunlearn("verify", record, tree / "model.onnx", *key)
    assert code == 0, err
    assert "The record verifies." in out
    assert f"{tree / 'model.onnx'} is the very file" in out
    assert "model.safetensors is the very file" in out
    assert "Only claimed:" in out
    proof = tree / "forgotten" / "proof-1.json"
    code, out, _ = qunlearn("verify", record, *key, "--proof", proof)
    assert code == 0
    assert f"The id {name!r} is in the request" in out
    other = json.loads(proof.read_text()) | {"id": "train/x"}
    (tree / "other.json").write_text(json.dumps(other))
    assert qunlearn("verify", record, *key, "--proof", tree / "other.json")[0] == 1
    (tree / "model.onnx").write_bytes(b"another")
    code, out, err = qunlearn("verify", record, tree / "model.onnx", *key)
    assert code == 1
    assert "none of the files that the record is about" in out
    assert qunlearn("check", tree / "forgotten")[0] == 0
    assert name not in record.read_text() + (tree / "forgotten" / "forgetting.html").read_text()


def test_the_record_is_an_in_toto_test_result(tree, officer):
    record = certified(tree / "forgotten", officer)
    envelope = json.loads(record.path.read_text())
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    statement = json.loads(base64.b64decode(envelope["payload"]))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    predicate = statement["predicate"]
    assert predicate["result"] in ("PASSED", "WARNED", "FAILED")
    names = [*predicate["passedTests"], *predicate["warnedTests"], *predicate["failedTests"]]
    assert sorted(names) == sorted(test["name"] for test in predicate["tests"])
    measured = {test["name"]: test for test in predicate["tests"]}
    low, high = measured["accuracy on retained"]["interval"]
    assert 0 <= low < measured["accuracy on retained"]["figure"] <= high <= 100
    assert predicate["request"]["committed"]["samples"] == 18


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa"])
def test_openssl_verifies_a_record(tree, kind):
    key = new_keys(tree / "k.pem", kind=kind)
    record = certified(tree / "forgotten", key.private)
    envelope = json.loads(record.path.read_text())
    payload = base64.b64decode(envelope["payload"])
    kind_of = envelope["payloadType"].encode()
    signed = b"DSSEv1 %d %b %d %b" % (len(kind_of), kind_of, len(payload), payload)
    (tree / "signed").write_bytes(signed)
    (tree / "sig").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
    files = {"pub": key.public, "sig": tree / "sig", "signed": tree / "signed"}
    words = {
        "ed25519": "pkeyutl -verify -pubin -inkey {pub} -rawin -sigfile {sig} -in {signed}",
        "ecdsa": "dgst -sha256 -verify {pub} -signature {sig} {signed}",
    }[kind].format(**files)
    assert subprocess.run(["openssl", *words.split()], check=False).returncode == 0
    (tree / "signed").write_bytes(signed.replace(b"PASSED", b"FAILED").replace(b"passed", b"p"))
    assert subprocess.run(["openssl", *words.split()], check=False).returncode != 0


def mutated(content: bytes, chance: random.Random) -> bytes:
    """The content with one change: a bit, a byte, a piece cut out, put in, or cut off."""
    at = chance.randrange(len(content))
    match chance.randrange(5):
        case 0:
            return (
                content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]
            )
        case 1:
            return content[:at] + bytes([chance.randrange(256)]) + content[at + 1 :]
        case 2:
            return content[:at] + content[at + chance.randint(1, 20) :]
        case 3:
            return content[:at] + chance.choice([b" ", b"\n", b"0", b"A", b"}"]) + content[at:]
        case _:
            return content[:at]


def test_no_forgery_verifies(tree):
    key = new_keys(tree / "officer.pem", kind="ecdsa")
    shutil.copytree(tree / "forgotten", tree / "second")
    certified(tree / "forgotten", key.private)
    record = certified(tree / "second", key.private).path
    (tree / "second" / "model.safetensors").write_bytes(b"w" * 3000)  # a small stand-in ...
    chance, refused = random.Random(27), 0
    good = verify(record, public_key=key.public)
    assert {c.name for c in good.checks if c.state == "failed"} == {"model.safetensors"}
    shutil.copyfile(tree / "forgotten" / "model.safetensors", record.with_name("model.safetensors"))
    assert verify(record, public_key=key.public).valid
    targets = {
        record: 400,
        tree / "forgotten" / "forgetting.intoto.json": 200,  # the chain
        record.with_name("forgetting.html"): 100,
        record.with_name("model.safetensors"): 50,
        record.with_name("metrics.json"): 50,
        key.public: 100,
        key.certificate: 100,
    }
    assert sum(targets.values()) == FORGERIES
    for path, count in targets.items():
        whole = path.read_bytes()
        for _ in range(count):
            while (forged := mutated(whole, chance)) == whole:
                pass
            path.write_bytes(forged)
            named = key.certificate if path == key.certificate else key.public
            try:
                valid = verify(record, public_key=named).valid
            except UserError:
                valid = False
            assert not valid, (path.name, forged)
            refused += 1
        path.write_bytes(whole)
    assert refused == FORGERIES
    assert verify(record, public_key=key.public).valid


def test_records_form_a_chain(tree, officer):
    shutil.copytree(tree / "forgotten", tree / "second")
    first = certified(tree / "forgotten", officer)
    second = certified(tree / "second", officer)
    again = certified(tree / "forgotten", officer)
    assert first.predicate.previous is None
    assert second.predicate.previous.sha256 == first.sha256
    assert again.predicate.previous.sha256 == second.sha256
    result = verify(again.path, public_key=officer.with_suffix(".pub"))
    assert [c.state for c in result.checks if c.what == "chain"] == ["proven", "proven"]
    archived = next(tree.glob("forgotten/records/*/forgetting.intoto.json"))
    assert verify(archived, public_key=officer.with_suffix(".pub")).valid
    second.path.unlink()
    result = verify(again.path, public_key=officer.with_suffix(".pub"))
    assert result.valid
    assert "which is not at hand" in " ".join(verification_words(result))


def test_wrong_keys_are_refused_in_a_sentence(qunlearn, tree, officer, tmp_path):
    run = tree / "forgotten"
    record = certified(run, officer).path
    other = new_keys(tmp_path / "other.pem")
    code, out, err = qunlearn("verify", record, "--public-key", other.public)
    assert code == 1
    assert "The record does NOT verify, and proves nothing." in out
    assert "Proven" not in out
    code, _, err = qunlearn("certify", run, "--key", tmp_path / "none.pem")
    assert code == 2
    assert "There is no file" in err
    officer.chmod(0o644)
    code, _, err = qunlearn("certify", run, "--key", officer)
    assert code == 2
    assert "can be read by others (mode 0644); run: chmod 600" in err
    officer.chmod(0o600)
    code, _, err = qunlearn("certify", run, "--key", officer.with_suffix(".pub"))
    assert code == 2
    code, _, err = qunlearn("certify", tree / "original", "--key", officer)
    assert code == 2
    assert "has forgotten nothing" in err
    code, _, err = qunlearn("keys", "new", officer)
    assert code == 2
    assert "is never overwritten" in err
    code, _, err = qunlearn("certify", run, "--key", officer, "--proof-for", "train/none")
    assert code == 2
    assert "'train/none' is not in the request" in err
    later = datetime.now(UTC) + timedelta(days=731)
    with pytest.raises(UserError, match="expired on"):
        read_signer(officer, later)


def test_a_record_of_another_run_does_not_verify(tree, officer):
    record = certified(tree / "forgotten", officer).path
    moved = tree / "original" / record.name
    shutil.copyfile(record, moved)
    result = verify(moved, public_key=officer.with_suffix(".pub"))
    assert not result.valid
    assert "model.safetensors is not the file" in " ".join(verification_words(result))


def test_a_record_escapes_what_it_quotes(tree, officer):
    from dataclasses import replace

    record = certified(tree / "forgotten", officer)
    nasty = replace(record.predicate, method="<script>alert(1)</script>")
    assert "<script>" not in record_page(nasty, record.statement.subject)


def test_without_the_extra_one_sentence_says_what_to_install(qunlearn, tree, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "cryptography.x509", None)
    code, _, err = qunlearn("keys", "new", tree / "k.pem")
    assert code == 2
    assert "pip install 'qunlearn[certify]'" in err
    assert not (tree / "k.pem").exists()


def test_hostile_records_are_refused(tree, tmp_path):
    for content in (b"", b"[]", b"{}", b"\xff", b'{"payload":"","payloadType":"","signatures":[]}'):
        path = tmp_path / "r.intoto.json"
        path.write_bytes(content)
        with pytest.raises(UserError, match="not an intact record"):
            read_record(path)


def test_nothing_is_written_with_a_wrong_key_or_for_an_unknown_id(qunlearn, tree, officer):
    run = tree / "forgotten"
    name = json.loads((run / "split.json").read_text())["requests"][0]["ids"][0]
    before = sorted(run.iterdir())
    for words in (
        ("--key", tree / "none.pem", "--proof-for", name),
        ("--key", officer, "--proof-for", name, "--proof-for", "train/none"),
        ("--key", officer, "--proof-for", name, "--onnx", tree / "none.onnx"),
    ):
        assert qunlearn("certify", run, *words)[0] == 2
        assert sorted(run.iterdir()) == before


def test_a_proof_is_never_overwritten_by_another_persons(qunlearn, tree, officer):
    run = tree / "forgotten"
    ids = json.loads((run / "split.json").read_text())["requests"][0]["ids"]
    for name in (ids[0], ids[1], ids[0]):
        assert qunlearn("certify", run, "--key", officer, "--proof-for", name)[0] == 0
    proofs = [json.loads(path.read_text())["id"] for path in sorted(run.glob("proof-*.json"))]
    assert proofs == ids[:2]


def test_every_audit_becomes_a_test_whatever_it_is_called(tree, officer):
    run = tree / "forgotten"
    figure = {"name": "AUC", "value": 0.71, "interval": {"low": 0.6, "high": 0.8}, "retrain": 0.5}
    rows = {
        "relearn": {"verdict": "fail", "figures": [figure], "needs": ["network"]},
        "differ": {"verdict": "pass", "figures": [], "needs": []},
        "novel": {"verdict": "cannot be told", "figures": [], "needs": [], "reason": "too few"},
    }
    content = {name: {"row": {"attack": name, **row}, "rest": 1} for name, row in rows.items()}
    (run / "audit.json").write_text(json.dumps({**content, "older": {"rows": []}}))
    record = certified(run, officer)
    tests = {test.name: test for test in record.predicate.tests}
    assert tests["audit: relearn"].outcome == "failed"
    assert tests["audit: relearn"].figure == 0.71
    assert tests["audit: relearn"].interval == (0.6, 0.8)
    assert "a Retrain: 0.500" in tests["audit: relearn"].meaning
    assert tests["audit: differ"].outcome == "passed"
    assert tests["audit: novel"].outcome == "warned"
    assert "Too few." in tests["audit: novel"].meaning
    assert tests["audit: older"].outcome == "warned"
    assert record.predicate.result == "FAILED"
    assert "audit.json" in {subject.name for subject in record.statement.subject}


def test_what_was_not_measured_is_not_passed(tree, officer):
    record = certified(tree / "forgotten", officer)
    tests = {test.name: test for test in record.predicate.tests}
    assert "earlier requests" not in tests  # there were none
    assert tests["accuracy on forgotten"].outcome == tests["verdict"].outcome
    assert tests["relearning"].unit == "points"
    for test in tests.values():
        if test.interval is not None:
            assert 0 <= test.interval[0] <= test.figure <= test.interval[1] <= 100
    metrics = Run.open(tree / "forgotten").metrics
    weak = metrics["attack_accuracy"] < 55
    assert (tests["membership attack"].outcome == "warned") >= weak
    assert ("shows nothing" in tests["membership attack"].meaning) >= weak


def test_of_few_samples_no_mean_tells_which_they_are(tree, officer):
    """With the network and a picture, anybody could compute the figure, and compare."""
    run = tree / "forgotten"
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["parts"]["forget"]["samples"] == 18
    probe = metrics["relearning"]
    calibration = {"target": 62.3456, "reached": 61.2345, "before": 97.6543, "chance": 20.0}
    metrics["calibration"] = {**calibration, "samples": 18, "unseen": 20, "random": True}

    def tests():
        sums = (run / "checksums.txt").read_text().splitlines()
        kept = "\n".join(line for line in sums if "metrics.json" not in line)
        (run / "checksums.txt").write_text(f"{kept}\n")
        (run / "metrics.json").write_text(json.dumps(metrics))
        return {test.name: test for test in findings_of(Run.open(run)).tests}

    enough = tests()
    assert enough["target"].figure == 61.2345
    assert f"{probe['before']:.1f} % before" in enough["relearning"].meaning
    metrics["parts"]["forget"]["samples"] = 1
    metrics["before"]["parts"]["forget"]["samples"] = 1
    metrics["calibration"]["samples"] = 1
    few = tests()
    assert few["target"].outcome == enough["target"].outcome
    for name in ("target", "relearning"):
        assert few[name].figure is None
        assert not re.search(r"\d\.\d", few[name].meaning)


def resealed(record, key, change):
    """The record with its envelope changed, written back as records are."""
    envelope = json.loads(record.path.read_text())
    change(envelope)
    record.path.write_text(json.dumps(envelope, indent=1, ensure_ascii=False) + "\n")
    try:
        return verify(record.path, public_key=key).valid
    except UserError:
        return False


def test_an_envelope_of_another_shape_does_not_verify(tree, tmp_path):
    key, other = new_keys(tmp_path / "k.pem"), new_keys(tmp_path / "e.pem", kind="ecdsa")
    record = certified(tree / "forgotten", key.private)
    whole = record.path.read_text()
    assert resealed(record, key.public, lambda e: None)
    theirs = read_signer(other.private).signer.sign(record.signed_bytes())
    foreign = base64.b64encode(bytes.fromhex(theirs.signature)).decode()
    ours = json.loads(whole)["signatures"][0]
    for change in (
        lambda e: e["signatures"].append({"keyid": theirs.keyid, "sig": foreign}),
        lambda e: e["signatures"].append(ours),
        lambda e: e["signatures"].clear(),
        lambda e: e["signatures"][0].update(sig=foreign),  # ECDSA under an Ed25519 key
        lambda e: e["signatures"][0].update(keyid=theirs.keyid, sig=foreign),
        lambda e: e.update(payloadType="application/json"),
        lambda e: e.update(extra=1),
    ):
        assert not resealed(record, key.public, change)
        record.path.write_text(whole)
    twice = whole.replace('"payloadType"', '"payloadType": "x",\n "payloadType"')
    record.path.write_text(twice)
    with pytest.raises(UserError, match="not an intact record"):
        read_record(record.path)


def test_a_certificate_with_another_issuer_is_refused(tree, officer):
    """Its dates could be changed along: nobody's signature on it can be checked."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    record = certified(tree / "forgotten", officer).path
    path = officer.with_suffix(".crt")
    der = x509.load_pem_x509_certificate(path.read_bytes()).public_bytes(serialization.Encoding.DER)
    forged = x509.load_der_x509_certificate(der.replace(b"officer", b"0fficer", 1))
    path.write_bytes(forged.public_bytes(serialization.Encoding.PEM))
    with pytest.raises(UserError, match="not an intact certificate"):
        verify(record, public_key=path)


def test_deep_and_large_files_are_refused(tree, tmp_path):
    path = tmp_path / "r.json"
    for content, why in ((b"[" * 10**5, "nested too deeply"), (b" " * (1 << 24 | 1), "too large")):
        path.write_bytes(content)
        with pytest.raises(UserError, match=why):
            read_record(path)


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs Chromium")
@pytest.mark.skipif(not shutil.which("pdftotext"), reason="needs poppler-utils")
def test_the_page_prints_on_a4_with_nothing_cut(tree, officer):
    record = certified(tree / "forgotten", officer)
    pdf = tree / "forgetting.pdf"
    words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
    words += ["--no-first-run", "--disable-background-networking", f"--user-data-dir={tree / 'c'}"]
    page = record.path.with_name("forgetting.html")
    subprocess.run(
        [*words, f"--print-to-pdf={pdf}", f"file://{page}"], check=True, capture_output=True
    )

    def told(*words: str) -> str:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    assert "(A4)" in told("pdfinfo", str(pdf))
    boxes = told("pdftotext", "-bbox", str(pdf), "-")
    width, height = (
        float(side) for side in re.search(r'width="(.*?)" height="(.*?)"', boxes).groups()
    )
    for box in re.findall(r'xMin="(.*?)" yMin="(.*?)" xMax="(.*?)" yMax="(.*?)"', boxes):
        left, top, right, bottom = map(float, box)
        assert 40 < left < right < width - 40  # within margins of about 16 mm
        assert 40 < top < bottom < height - 40
    text, predicate = told("pdftotext", str(pdf), "-"), record.predicate
    joined, words = "".join(text.split()), {*text.split()}
    expected = [predicate.request.committed.root, predicate.signer.key_id, *predicate.limits]
    expected += [subject.digest.sha256 for subject in record.statement.subject[:-1]]
    assert [each for each in expected if "".join(each.split()) not in joined] == []
    told_by_tests = {word for test in predicate.tests for word in test.meaning.split()}
    assert told_by_tests <= words  # none is broken


def test_a_private_key_is_never_readable_by_others_not_even_while_it_is_written(
    tmp_path, monkeypatch
):
    modes, real = [], os.open

    def watched(path, flags, mode=0o777, **more):
        if flags & os.O_CREAT:
            modes.append(mode)
        return real(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", watched)
    before = os.umask(0)
    try:
        new_keys(tmp_path / "officer.pem")
    finally:
        os.umask(before)
    assert modes[0] == 0o600  # the private key is written first, with its mode from the start
    assert (tmp_path / "officer.pem").stat().st_mode & 0o777 == 0o600
