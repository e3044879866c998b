"""Erasing: nothing of the samples is left, and a kill at any instant loses nothing else."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import random
import re
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
from conftest import SMALL, flags
from PIL import Image

from qunlearn.audit.pool_folder import LIST, Pool, pool_above
from qunlearn.data import load_dataset
from qunlearn.data.sources.decode import cached_as
from qunlearn.data.sources.npz import to_arrays
from qunlearn.evidence.commitment import committed_ids
from qunlearn.evidence.erase import erase
from qunlearn.evidence.family import family
from qunlearn.evidence.plan import PLAN, pending, plan_erasing
from qunlearn.evidence.record import RECORD, read_record
from qunlearn.runs.data import split_of
from qunlearn.runs.forget import forget_run
from qunlearn.runs.request import ForgetConfig
from qunlearn.store.cache import default_cache_dir
from qunlearn.store.lock import locked
from qunlearn.store.run import Run
from qunlearn.store.weights import read_header


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """Runs on digits in a file: an original, Anna's samples forgotten, and a Retrain beside."""
    folder = tmp_path_factory.mktemp("erase")
    data = load_dataset("digits", subset=120)
    np.savez(folder / "people.npz", **to_arrays(data))
    from qunlearn.runs.config import TrainConfig
    from qunlearn.runs.train import train_run

    small = {k: v for k, v in SMALL.items() if k != "subset"} | {"epochs": 1, "model": "cnn"}
    settings = TrainConfig.parse({**small, "dataset": str(folder / "people.npz")})
    train_run(settings, folder / "runs" / "original")
    split = split_of(Run.open(folder / "runs" / "original"))
    anna = [split.data.ids[row] for row in (*split.train[:6].tolist(), *split.test[:2].tolist())]
    rows = [f"{name},{'anna@example.org' if name in anna else 'x'}" for name in data.ids]
    (folder / "people.csv").write_text("\n".join(["id,user", *rows]) + "\n")
    asked = {
        "run": folder / "runs" / "original",
        "where": "user == 'anna@example.org'",
        "metadata": folder / "people.csv",
        "method": "ga",
        "threads": 1,
    }
    forget_run(ForgetConfig.parse(asked), folder / "runs" / "forgotten")
    sibling = {**asked, "method": "rl", "settings": {"epochs": 1}}
    forget_run(ForgetConfig.parse(sibling), folder / "runs" / "sibling")
    return folder, anna


@pytest.fixture
def place(story, tmp_path):
    """A copy of one's own, with the ids of Anna's samples."""
    folder, anna = story
    shutil.copytree(folder, tmp_path / "p")
    return tmp_path / "p", anna


def traces(folder: Path, data, anna) -> dict[str, bytes]:
    """What must not be found: ids, hashes, pixels, and the network's answers."""
    pieces: dict[str, bytes] = {}
    rows = data.index_of(anna)
    for name, row, mark in zip(anna, rows.tolist(), data.hashes(rows), strict=True):
        pixels = data.images[row].numpy()
        png = io.BytesIO()
        Image.fromarray(pixels[0]).save(png, "PNG")
        pieces |= {f"id {name}": f'"{name}"'.encode(), f"hash {name}": mark.encode()}
        pieces |= {f"pixels {name}": pixels.tobytes(), f"png {name}": png.getvalue()[40:-12]}
    run = Run.open(folder / "runs" / "forgotten")
    parts = json.loads(run.split)["parts"]
    keyed = {name: mark for part in parts.values() for name, mark in part.items()}
    pieces |= {f"keyed {name}": keyed[name].encode() for name in anna}
    for number, logits in enumerate(run.predictions["forget"]):
        pieces[f"scores {number}"] = logits.numpy().tobytes()
    return pieces


def content(path: Path) -> bytes:
    """The bytes of a file; what is packed in it is unpacked, too."""
    whole = path.read_bytes()
    if path.name == "model.safetensors":
        whole += zlib.decompress(base64.b64decode(read_header(path)["split"]))
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            whole += b"".join(arrays[name].tobytes() for name in arrays.files)
            names = [*arrays.get("id_train", []), *arrays.get("id_test", [])]
            whole += json.dumps([str(name) for name in names]).encode()
    return whole


def traces_in(folder: Path, wanted: dict[str, bytes]) -> set[str]:
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != "people.csv"]
    whole = [content(path) for path in files]
    return {what for what, piece in wanted.items() if any(piece in each for each in whole)}


def test_nothing_of_the_samples_is_left_and_the_run_still_works(qunlearn, place, monkeypatch):
    folder, anna = place
    monkeypatch.chdir(folder)
    data = load_dataset(str(folder / "people.npz"))
    wanted = traces(folder, data, anna)
    assert qunlearn("report", "runs/forgotten", "--image")[0] == 0
    before = traces_in(folder, wanted)
    assert {"id", "keyed", "pixels", "scores"} == {what.split()[0] for what in before}
    code, out, err = qunlearn("erase", "runs/forgotten", "--dry-run", "--data", "people.npz")
    assert code == 0, err
    assert "original" in out
    assert traces_in(folder, wanted) == before  # nothing was changed
    assert qunlearn("erase", "runs/forgotten")[0] == 2  # nobody confirmed it
    code, out, err = qunlearn("erase", "runs/forgotten", "--data", "people.npz", "--yes")
    assert code == 0, err
    assert "Backups" in out
    assert traces_in(folder, wanted) == set()
    assert not any(b"anna@" in p.read_bytes() for p in (folder / "runs").rglob("*") if p.is_file())
    assert not (folder / "runs" / "original").exists()
    for words in (
        ("check", "runs/forgotten"),
        ("check", "runs/sibling"),
        ("evaluate", "runs/forgotten"),
        ("report", "runs/forgotten"),
        ("export", "runs/forgotten", "--out", "m.onnx"),
        ("forget", "runs/forgotten", "--random", 0.1, "--method", "ga", "--out", "runs/next"),
    ):
        code, out, err = qunlearn(*words)
        assert code == 0, (words, err)
    assert qunlearn("erase", "runs/next", "--yes")[0] == 0
    assert not (folder / "runs" / "forgotten" / "model.safetensors").exists()
    assert (folder / "runs" / "forgotten" / "erased.json").exists()  # its papers stay
    left = load_dataset(str(folder / "people.npz"))
    assert len(left) == len(data) - len(anna)
    assert {*left.ids} == {*data.ids} - {*anna}


RANDOM = ("commitment.json", "erased.json", "checksums.txt", "run.json", "audit.json")
"""Files with tokens or the time of day."""


def listing(folder: Path) -> dict[str, bytes]:
    """All files, without what is random or the time of day."""
    files = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.name in RANDOM:
            files[str(path.relative_to(folder))] = b""
        elif path.name == "split.json":
            text = json.loads(path.read_text())
            kept = {k: sorted(v) for k, v in text["parts"].items()}
            kept = {k: [i for i in v if not i.startswith("erased/")] for k, v in kept.items()}
            sizes = [[len(r["ids"]), len(r.get("retired", []))] for r in text["requests"]]
            files[str(path.relative_to(folder))] = json.dumps([kept, sizes]).encode()
        elif path.name == "split.key":
            kept = sorted(json.loads(path.read_text())["keys"].items())
            files[str(path.relative_to(folder))] = json.dumps(kept).encode()
        elif path.name == "model.safetensors":
            files[str(path.relative_to(folder))] = path.read_bytes()[-2000:]
        else:
            files[str(path.relative_to(folder))] = path.read_bytes()
    return files


def killed_after(calls: int, path: Path, data: Path) -> bool:
    """Erase in a child that dies at its so-manieth change of the disk; whether it did."""
    child = os.fork()
    if not child:
        count = 0

        def dying(function):
            def call(*words, **more):
                nonlocal count
                count += 1
                if count > calls:
                    os._exit(9)
                return function(*words, **more)

            return call

        for name in ("replace", "unlink", "rmdir", "mkdir", "fsync"):
            setattr(os, name, dying(getattr(os, name)))
        try:
            erase(path, pending(path, data=data) or plan_erasing(path, data=data))
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WEXITSTATUS(status) in (0, 9)
    return os.WEXITSTATUS(status) == 9


def test_killed_at_twenty_instants_it_comes_to_the_same_end(story, tmp_path):
    folder, anna = story
    chance, ends, kills = random.Random(27), [], 0
    instants = [10**6, *(chance.randrange(1, 110) for _ in range(20))]
    for number, calls in enumerate(instants):
        copy = tmp_path / str(number)
        shutil.copytree(folder, copy)
        path, data = copy / "runs" / "forgotten", copy / "people.npz"
        (copy / "runs" / "other.txt").write_text("not ours")
        with_a_pool(copy / "runs", anna)
        if killed_after(calls, path, data):
            kills += 1
            killed_after(chance.randrange(1, 60), path, data)  # while it goes on
            if (path / PLAN).exists() or not (path / "erased.json").exists():
                erase(path, pending(path, data=data) or plan_erasing(path, data=data))
        assert not (path / PLAN).exists()
        for run in ("forgotten", "sibling"):  # every file matches its checksum, and the commitment
            opened = Run.open(copy / "runs" / run)
            for name in opened.checksums:
                opened._checked(name)
        assert committed_ids(Run.open(path), anna) == {*anna}
        done = json.loads((path / "erased.json").read_text())
        ends.append(listing(copy) | {"erased": json.dumps([done["samples"], done["cleaned"]])})
        shutil.rmtree(copy)
    assert kills >= 15
    for end in ends:
        assert end.keys() == ends[0].keys()
        assert [name for name in end if end[name] != ends[0][name]] == []


def test_a_run_that_others_descend_from_is_refused_without_cascade(qunlearn, place, monkeypatch):
    folder, anna = place
    monkeypatch.chdir(folder / "runs")
    ask = ("--random", 0.1, "--method", "ga", "--threads", 1)
    assert qunlearn("forget", "forgotten", *ask, "--out", "later")[0] == 0
    assert qunlearn("forget", "original", *ask, "--out", "branch")[0] == 0
    code, _, err = qunlearn("erase", "forgotten", "--yes")
    assert code == 2
    assert "branch, later" in err
    assert "--cascade" in err
    assert (folder / "runs" / "original" / "run.json").exists()
    code, _, err = qunlearn("erase", "forgotten", "--yes", "--cascade")
    assert code == 0, err
    assert not (folder / "runs" / "branch").exists()
    assert qunlearn("check", "later")[0] == 0
    assert not any(f'"{n}"' in (folder / "runs/later/split.json").read_text() for n in anna)


def test_it_refuses_while_a_run_is_being_written(qunlearn, place):
    folder, _ = place
    child = os.fork()
    if not child:
        with locked(folder / "runs" / "original"):
            (folder / "held").touch()
            import time

            time.sleep(60)
        os._exit(0)
    try:
        while not (folder / "held").exists():
            pass
        code, _, err = qunlearn("erase", folder / "runs" / "forgotten", "--yes")
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert code == 2
    assert "Another process is writing" in err
    assert (folder / "runs" / "original" / "run.json").exists()


def test_what_is_asked_wrongly_changes_nothing(qunlearn, place, tmp_path):
    folder, _ = place
    runs = folder / "runs"
    for words, told in (
        (("erase", runs / "original", "--yes"), "has forgotten nothing"),
        (("erase", runs / "none", "--yes"), "There is no run folder"),
        (("erase", runs / "forgotten", "--yes", "--within", tmp_path / "q"), "is not in"),
        (("erase", runs / "forgotten", "--yes", "--data", folder / "people.csv"), "cannot be"),
    ):
        code, _, err = qunlearn(*words)
        assert code == 2, words
        assert told in err
    assert Run.is_complete(runs / "original")


def test_links_are_not_followed(place, tmp_path):
    folder, _ = place
    shutil.move(folder / "runs" / "original", tmp_path / "elsewhere")
    (folder / "runs" / "original").symlink_to(tmp_path / "elsewhere")
    run = Run.open(folder / "runs" / "forgotten")
    paths = [each.path.name for each in family(run, folder / "runs")]
    assert "original" not in paths
    plan = plan_erasing(run.path)
    assert "outside" in {left.kind for left in plan.left}  # named, and not touched
    erase(run.path, plan)
    assert Run.is_complete(tmp_path / "elsewhere")


@pytest.mark.parametrize("action", ["file", "delete", "rows", "cache", "clean", "comparison"])
def test_a_planted_plan_reaches_nothing_outside(qunlearn, place, tmp_path, action):
    folder, _ = place
    (tmp_path / "victim.npz").write_text("precious")
    run = folder / "runs" / "forgotten"
    for target in (tmp_path / "victim.npz", folder / "runs" / ".." / ".." / "victim.npz"):
        steps = [{"action": action, "path": str(target)}]
        plan = {"within": str(folder / "runs"), "tokens": {}, "steps": steps, "left": []}
        (run / PLAN).write_text(json.dumps(plan))
        code, _, err = qunlearn("erase", run, "--yes", "--data", folder / "people.npz")
        assert code == 2
        assert "also changes" in err
    (run / PLAN).write_text(json.dumps({**plan, "within": str(tmp_path)}))
    code, _, err = qunlearn("erase", run, "--yes")
    assert code == 2
    assert "--within" in err
    assert (tmp_path / "victim.npz").read_text() == "precious"


def test_files_of_an_image_folder_are_erased(qunlearn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    for part, count in (("train", 20), ("test", 8)):
        for number in range(count):
            path = tmp_path / "pets" / part / ("cat", "dog")[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(draw.integers(0, 255, (8, 8, 3), np.uint8)).save(path)
    small = {k: v for k, v in SMALL.items() if k != "subset"} | {"epochs": 1, "model": "cnn"}
    small |= {"batch_size": 8}
    assert qunlearn("train", *flags({**small, "dataset": "pets"}), "--out", "runs/o")[0] == 0
    split = split_of(Run.open(tmp_path / "runs/o"))
    gone = split.data.ids[int(split.train[0])]
    (tmp_path / "ids.txt").write_text(gone)
    ask = ("--ids", "ids.txt", "--method", "ga", "--threads", 1, "--out", "runs/f")
    assert qunlearn("forget", "runs/o", *ask)[0] == 0
    assert (tmp_path / "pets" / gone).exists()
    cached = default_cache_dir() / "images" / f"{cached_as('pets', tmp_path / 'pets')}.k.npy"
    cached.parent.mkdir(parents=True, exist_ok=True)
    cached.write_bytes(b"decoded")
    assert qunlearn("erase", "runs/f", "--data", "pets", "--yes")[0] == 0
    assert not (tmp_path / "pets" / gone).exists()
    assert not cached.exists()
    assert len([*(tmp_path / "pets").rglob("*.png")]) == 27
    assert qunlearn("evaluate", "runs/f")[0] == 0


def test_the_rows_of_other_data_are_never_touched(qunlearn, place):
    folder, _ = place
    runs, other = folder / "runs", folder / "other.npz"
    with np.load(folder / "people.npz") as arrays:
        np.savez(other, **{**arrays, "x_train": 255 - arrays["x_train"]})  # the same ids
    before = other.read_bytes()
    code, _, err = qunlearn("erase", runs / "forgotten", "--data", other, "--yes")
    assert code == 2
    assert "does not match the split" in err
    assert other.read_bytes() == before
    assert Run.is_complete(runs / "original")


def test_a_record_confirms_no_guess_at_what_was_asked(qunlearn, place, monkeypatch):
    """It is handed out: neither names of files nor digests may tell whose request it was."""
    folder, anna = place
    monkeypatch.chdir(folder)
    (folder / "anna.txt").write_text("\n".join(anna))
    ask = ("--ids", "anna.txt", "--method", "ga", "--threads", 1, "--out", "runs/listed")
    assert qunlearn("forget", "runs/original", *ask)[0] == 0
    config, run = folder / "runs" / "listed" / "config.toml", folder / "runs" / "listed"
    assert qunlearn("keys", "new", "officer.pem")[0] == 0
    assert qunlearn("certify", "runs/listed", "--key", "officer.pem")[0] == 0
    (settings,) = read_record(run / RECORD).predicate.configuration
    asked = hashlib.sha256(config.read_bytes()).hexdigest()
    code, out, err = qunlearn("erase", "runs/listed", "--data", "people.npz", "--yes", "--cascade")
    assert code == 0, err
    assert "The list of what was asked, anna.txt" in out
    assert settings.digest.sha256 != asked
    assert settings.digest.sha256 == hashlib.sha256(config.read_bytes()).hexdigest()
    assert qunlearn("certify", "runs/listed", "--key", "officer.pem")[0] == 0
    handed_out = read_record(run / RECORD).statement.payload().decode()
    handed_out += (run / "forgetting.html").read_text()
    assert "The list of what was asked: it may" in handed_out
    for word in ("anna", "people.csv", str(folder), *(f'"{name}"' for name in anna)):
        assert word not in handed_out, word


def test_data_that_was_named_too_late_is_still_erased(qunlearn, place):
    folder, anna = place
    run, data = folder / "runs" / "forgotten", folder / "people.npz"
    code, out, _ = qunlearn("erase", run, "--yes")
    assert code == 0
    assert "erase them with --data" in out
    removed = json.loads((run / "erased.json").read_text())["removed"]
    code, out, err = qunlearn("erase", run, "--data", data, "--yes")
    assert code == 0, err
    assert f"Erased {len(anna)} samples" in out
    assert not {*load_dataset(str(data)).ids} & {*anna}
    done = json.loads((run / "erased.json").read_text())
    assert done["removed"] == [*removed, "samples in people.npz"]  # what was erased before stays
    assert "data" not in {left["kind"] for left in done["left"]}
    code, _, err = qunlearn("erase", run, "--data", data, "--yes")
    assert code == 2
    assert "erased already" in err


def test_comparisons_keep_their_table_and_nothing_of_the_samples(qunlearn, place, monkeypatch):
    folder, anna = place
    monkeypatch.chdir(folder)
    wanted = traces(folder, load_dataset("people.npz"), anna)
    ask = ("--where", "user == 'anna@example.org'", "--metadata", "people.csv", "--threads", 1)
    words = ("--methods", "ga", "--seeds", 1, "--out", "runs/table")
    code, _, err = qunlearn("compare", "runs/original", *ask, *words)
    assert code == 0, err
    for run in (folder / "runs" / "table").rglob("predictions.safetensors"):
        rows = Run.open(run.parent).predictions["forget"]
        wanted |= {f"scores {run.parent} {i}": row.numpy().tobytes() for i, row in enumerate(rows)}
    before = traces_in(folder / "runs" / "table", wanted)
    assert {"id", "keyed", "scores"} == {what.split()[0] for what in before}
    figures = json.loads((folder / "runs" / "table" / "table.json").read_text())["rows"]
    assert qunlearn("erase", "runs/forgotten", "--data", "people.npz", "--yes")[0] == 0
    assert traces_in(folder, wanted) == set()
    assert not any(b"anna@" in p.read_bytes() for p in (folder / "runs").rglob("*") if p.is_file())
    assert not (folder / "runs" / "table" / "cells").exists()
    assert json.loads((folder / "runs" / "table" / "table.json").read_text())["rows"] == figures
    assert qunlearn("report", "runs/table")[0] == 0


def test_runs_in_hidden_folders_and_inside_other_runs_are_found(place):
    folder, _ = place
    runs = folder / "runs"
    shutil.move(runs / "original", runs / ".old")
    shutil.move(runs / "sibling", runs / "forgotten" / "sibling")
    paths = {each.path.name: each.role for each in family(Run.open(runs / "forgotten"), runs)}
    assert paths == {".old": "delete", "sibling": "clean", "forgotten": "clean"}


def test_keys_are_destroyed_in_runs_that_share_the_seed(place):
    """A run on other samples of the same data has the seed, from which all keys follow."""
    from qunlearn.data.manifest_key import ManifestKey

    folder, anna = place
    run, other = folder / "runs" / "forgotten", folder / "runs" / "other"
    shutil.copytree(folder / "runs" / "original", other)
    text = json.loads((other / "split.json").read_text())
    for part in text["parts"].values():
        for name in {*part} & {*anna}:
            del part[name]
    (other / "split.json").write_text(json.dumps(text, sort_keys=True, separators=(",", ":")))
    sums = (other / "checksums.txt").read_text().splitlines()
    (other / "checksums.txt").write_text("\n".join(s for s in sums if "split.json" not in s) + "\n")
    before = ManifestKey.read(other)
    kept = next(iter(text["parts"]["train"]))
    erase(run, plan_erasing(run))
    after = ManifestKey.read(other)
    assert after.seal(kept, "ab") == before.seal(kept, "ab")
    assert after.seal(anna[0], "ab") != before.seal(anna[0], "ab")


def test_it_says_which_records_and_lists_are_outdated(qunlearn, place, tmp_path):
    folder, anna = place
    run = folder / "runs" / "forgotten"
    assert qunlearn("keys", "new", tmp_path / "o.pem")[0] == 0
    assert qunlearn("certify", run, "--key", tmp_path / "o.pem")[0] == 0
    plan = plan_erasing(run)
    assert plan.outdated == ("forgotten",)
    assert "Certify again" in qunlearn("erase", run, "--dry-run")[1]
    (folder / "anna.txt").write_text(anna[0])
    ask = ("--ids", folder / "anna.txt", "--method", "ga", "--threads", 1)
    one = folder / "runs" / "one"
    assert qunlearn("forget", folder / "runs" / "original", *ask, "--out", one)[0] == 0
    for path in (one, run):  # of the run itself, and of one that is deleted along, as in a pool
        left = {each.kind: each.name for each in plan_erasing(path).left}
        assert left["list"].endswith("anna.txt")


def with_a_pool(runs, anna):
    """A pool beside the runs as `audit pool` lays it out, and an audit that names a sample."""
    pool = runs / "original-pool" / "0123456789ab"
    shutil.copytree(runs / "original", pool / "trained" / "000")
    shutil.copytree(runs / "forgotten", pool / "unlearned" / "ga-01234567" / "000")
    (pool / "ids").mkdir()
    (pool / "ids" / "000.txt").write_text("\n".join(["id", *anna]))
    (pool / "jobs").mkdir()  # left by an audit on a cluster that was interrupted
    (pool / "jobs" / "7_submitted.pkl").write_text("\n".join(anna))
    (runs / "forgotten" / "audit.json").write_text(json.dumps({"copies": {"of": anna}}))
    return pool


def test_a_pool_goes_as_a_whole_with_its_lists(qunlearn, place):
    folder, anna = place
    runs = folder / "runs"
    pool = with_a_pool(runs, anna)
    wanted = traces(folder, load_dataset(str(folder / "people.npz")), anna)
    wanted |= {f"listed {name}": f"{name}\n".encode() for name in anna[:-1]}
    assert "listed" in {what.split()[0] for what in traces_in(pool, wanted)}
    code, out, err = qunlearn("erase", runs / "forgotten", "--yes")  # without --cascade
    assert code == 0, err
    assert "the pool original-pool/0123456789ab" in out
    assert "trained/000" not in out  # told as one thing
    assert not (runs / "original-pool").exists()
    assert traces_in(runs, wanted) == set()


def test_a_shadow_pair_goes_with_the_samples_that_it_saw(qunlearn, place):
    from qunlearn.audit.shadow import ShadowConfig
    from qunlearn.study.pool import make_shadow

    folder, anna = place
    runs = folder / "runs"
    pool = make_shadow(runs / "forgotten", ShadowConfig(threads=1))
    wanted = traces(folder, load_dataset(str(folder / "people.npz")), anna)
    assert traces_in(pool.folder, wanted) == set()
    assert qunlearn("erase", runs / "forgotten", "--yes")[0] == 0
    assert traces_in(runs, wanted) == set()
    assert Run.is_complete(pool.trained(0))  # it never saw Anna
    ask = ("--random", 0.1, "--method", "ga", "--threads", 1, "--out", runs / "later")
    assert qunlearn("forget", runs / "forgotten", *ask)[0] == 0
    code, out, err = qunlearn("erase", runs / "later", "--yes", "--cascade")
    assert code == 0, err
    assert f"the pool original-pool/{pool.folder.name}" in out
    assert not (runs / "original-pool").exists()


def test_audits_keep_their_verdicts_and_no_ids(qunlearn, place):
    folder, anna = place
    run = folder / "runs" / "forgotten"
    pair = {"forgotten": anna[0], "retained": "train/x", "by": "hash", "distance": 0.1}
    audits = {"copies": {"exact": 0, "copies": [pair], "row": {"attack": "copies"}}}
    audits["plug-in"] = {"scores": {anna[1]: 0.5, "train/x": 0.25}}
    (run / "audit.json").write_text(json.dumps(audits))
    assert qunlearn("erase", run, "--yes")[0] == 0
    text = (run / "audit.json").read_text()
    assert not any(f'"{name}"' in text for name in anna)
    cleaned = json.loads(text)
    token = cleaned["copies"]["copies"][0].pop("forgotten")
    assert token.startswith("erased/")
    assert cleaned["copies"]["copies"] == [{k: v for k, v in pair.items() if k != "forgotten"}]
    assert cleaned["plug-in"]["scores"]["train/x"] == 0.25
    assert cleaned["copies"]["row"] == {"attack": "copies"}


def test_no_score_of_a_single_sample_is_left(qunlearn, place):
    """Of one sample, a mean is its score: with the network, it would tell which picture it was."""
    folder, anna = place
    runs = folder / "runs"
    (folder / "one.txt").write_text(anna[0])
    ask = ("--ids", folder / "one.txt", "--method", "ga", "--threads", 1, "--out", runs / "one")
    assert qunlearn("forget", runs / "original", *ask)[0] == 0
    score = json.loads((runs / "one" / "metrics.json").read_text())["parts"]["forget"]["confidence"]
    logits = Run.open(runs / "one").predictions["forget"][0].double()
    data = load_dataset(str(folder / "people.npz"))
    label = int(data.labels[data.index_of(anna[:1])][0])
    assert abs(logits.softmax(0)[label] - score) < 1e-6  # whoever has the picture can compute it
    audits = {"plug-in": {"curves": [{"points": [{"steps": 0, "confidence": 100 * score}]}]}}
    (runs / "one" / "audit.json").write_text(json.dumps(audits))
    assert qunlearn("erase", runs / "one", "--yes", "--cascade")[0] == 0
    for file in ("metrics.json", "audit.json"):
        text = (runs / "one" / file).read_text()
        assert f"{score:.5f}"[2:] not in text.replace(".", "")
    rounded = json.loads((runs / "one" / "metrics.json").read_text())["parts"]["forget"]
    assert rounded["confidence"] == float(f"{score:.3g}")
    code, _, err = qunlearn("report", runs / "one")
    assert code == 0, err


def sealed_again(run, name, text):
    """Change a file of a run, and leave it out of the checksums."""
    (run / name).write_text(text)
    sums = (run / "checksums.txt").read_text().splitlines()
    (run / "checksums.txt").write_text("\n".join(s for s in sums if name not in s) + "\n")


def test_images_are_cached_for_each_place_that_a_run_read_them_from(place):
    folder, _ = place
    original, run = folder / "runs" / "original", folder / "runs" / "forgotten"
    shutil.copytree(folder, folder / "moved", ignore=shutil.ignore_patterns("runs"))
    moved = folder / "moved" / "people.npz"
    config = (original / "config.toml").read_text()
    settings = re.sub("(?m)^dataset = .*$", f'dataset = "{moved}"', config)
    sealed_again(original, "config.toml", settings)
    cached = default_cache_dir() / "images" / f"{cached_as('people', moved)}.k.npy"
    cached.parent.mkdir(parents=True, exist_ok=True)
    cached.write_bytes(b"decoded")
    assert "cache" not in {left.kind for left in plan_erasing(run).left}
    info = json.loads((run / "run.json").read_text()) | {"made_in": "Python"}
    sealed_again(run, "run.json", json.dumps(info))
    plan = plan_erasing(run)
    assert "cache" in {left.kind for left in plan.left}  # Python may have named any folder
    erase(run, plan)
    assert not cached.exists()


def test_proofs_and_exported_networks_go_with_the_run(qunlearn, place):
    """A proof names the person, and a network that was exported from the original knows them."""
    folder, anna = place
    runs = folder / "runs"
    (runs / "original" / "model.onnx").write_bytes(b"knows Anna")
    (runs / "forgotten" / "proof-1.json").write_text(json.dumps({"id": anna[0]}))
    (runs / "forgotten" / "model.onnx").write_bytes(b"has forgotten Anna")
    (runs / "original" / "notes.txt").write_text("mine")
    ask = ("--random", 0.1, "--method", "ga", "--threads", 1, "--out", runs / "later")
    assert qunlearn("forget", runs / "forgotten", *ask)[0] == 0
    code, _, err = qunlearn("erase", runs / "later", "--yes")
    assert code == 0, err
    left = {each["name"] for each in json.loads((runs / "later/erased.json").read_text())["left"]}
    assert str((runs / "original" / "notes.txt").resolve()) in left
    assert [path.name for path in (runs / "original").iterdir()] == ["notes.txt"]
    assert [path.name for path in (runs / "forgotten").iterdir()] == ["erased.json"]


def test_a_rule_still_chooses_where_the_metadata_lists_erased_samples(qunlearn, place, monkeypatch):
    folder, _ = place
    monkeypatch.chdir(folder)
    assert qunlearn("erase", "runs/forgotten", "--data", "people.npz", "--yes")[0] == 0
    rows = [line.split(",")[0] for line in (folder / "people.csv").read_text().splitlines()[1:]]
    trained = json.loads((folder / "runs/forgotten/split.json").read_text())["parts"]["train"]
    ben = [name for name in rows if name in trained][:4]
    lines = [f"{name},{'ben' if name in ben else 'x'}" for name in rows]
    (folder / "people.csv").write_text("\n".join(["id,user", *lines]))
    ask = ("--where", "user == ben", "--metadata", "people.csv", "--data", "people.npz")
    ask += ("--method", "ga", "--threads", 1)
    code, _, err = qunlearn("forget", "runs/forgotten", *ask, "--out", "runs/ben")
    assert code == 0, err
    (folder / "people.csv").write_text("\n".join(["id,user", *lines, "train/9999,x"]))
    code, _, err = qunlearn("forget", "runs/forgotten", *ask, "--out", "runs/typo")
    assert code == 2
    assert "There is no sample" in err  # one more than were erased


def test_samples_are_recognised_after_an_earlier_erasure_destroyed_other_keys(place):
    """Of the same data, one run has the keys from before it, the other those from after it."""
    from qunlearn.data.manifest_key import ManifestKey

    folder, anna = place
    runs, other = folder / "runs", folder / "runs" / "other"
    shutil.copytree(runs / "original", other)
    assert {r.path.name: r.role for r in family(Run.open(runs / "forgotten"), runs)}["other"]
    key = ManifestKey.read(other)
    names = {
        n for part in json.loads((other / "split.json").read_text())["parts"].values() for n in part
    }
    later = key.without(anna, names - {*anna})  # the samples came again, with keys of their own
    text = json.loads((other / "split.json").read_text())
    hashes = load_dataset(str(folder / "people.npz"))
    marks = dict(zip(anna, hashes.hashes(hashes.index_of(anna)), strict=True))
    for part in text["parts"].values():
        part.update({n: later.seal(n, marks[n]) for n in part.keys() & marks.keys()})
    sums = (other / "checksums.txt").read_text().splitlines()
    (other / "checksums.txt").write_text("\n".join(s for s in sums if "split.json" not in s) + "\n")
    (other / "split.json").write_text(json.dumps(text, sort_keys=True, separators=(",", ":")))
    later.write(other)
    roles = {each.path.name: each.role for each in family(Run.open(runs / "forgotten"), runs)}
    assert roles["other"] == "delete"


def test_a_pool_is_known_by_where_its_runs_lie(tmp_path):
    name = hashlib.sha256(b"plan").hexdigest()[:12]
    pool = Pool(None, None, tmp_path / name, None)
    for run in (pool.trained(3), pool.unlearned("ga", {}, 3)):
        run.mkdir(parents=True)
        assert pool_above(run) == pool.folder
    assert LIST.fullmatch(pool.ids(3).name)
    (tmp_path / "trained" / "mine").mkdir(parents=True)
    assert pool_above(tmp_path / "trained" / "mine") is None
