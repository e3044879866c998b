"""Signed records: made, verified with and without qunlearn, and forged."""

from __future__ import annotations

import base64
import json
import random
import shutil
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from qunlearn.errors import UserError
from qunlearn.evidence.certify import certify
from qunlearn.evidence.keys import new_keys, read_signer
from qunlearn.evidence.record import read_record
from qunlearn.evidence.verify import verify
from qunlearn.report.record import findings_of, record_page, verification_words
from qunlearn.store.run import Run

FORGERIES = 1000


def certified(run, key, **more):
    opened = Run.open(run)
    return certify(opened, key, findings_of(opened), record_page, **more)


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
    assert measured["accuracy on retained"]["interval"] > 0
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
            forged = mutated(whole, chance)
            if forged == whole:
                refused += 1
                continue
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
    found = verify(again.path, public_key=officer.with_suffix(".pub"))
    assert [c.state for c in found.checks if c.what == "chain"] == ["proven", "proven"]
    archived = next(tree.glob("forgotten/records/*/forgetting.intoto.json"))
    assert verify(archived, public_key=officer.with_suffix(".pub")).valid
    second.path.unlink()
    found = verify(again.path, public_key=officer.with_suffix(".pub"))
    assert found.valid
    assert "which is not at hand" in " ".join(verification_words(found))


def test_wrong_keys_are_refused_in_a_sentence(qunlearn, tree, officer, tmp_path):
    run = tree / "forgotten"
    record = certified(run, officer).path
    other = new_keys(tmp_path / "other.pem")
    code, out, err = qunlearn("verify", record, "--public-key", other.public)
    assert code == 1
    assert "The record does NOT verify." in out
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
    found = verify(moved, public_key=officer.with_suffix(".pub"))
    assert not found.valid
    assert "model.safetensors is not the file" in " ".join(verification_words(found))


def test_a_record_escapes_what_it_quotes(tree, officer):
    from dataclasses import replace

    record = certified(tree / "forgotten", officer)
    nasty = replace(record.predicate, method="<script>alert(1)</script>")
    assert "<script>" not in record_page(nasty)


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
