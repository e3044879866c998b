import json
import os
import resource
import shutil
import subprocess
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import torch
from sealed import seal

from qunlearn.errors import Failure, UserError
from qunlearn.store import run as run_module
from qunlearn.store.history import Epoch
from qunlearn.store.info import RunInfo
from qunlearn.store.run import Run
from qunlearn.store.start import AnotherRun
from qunlearn.store.weights import write_weights

FIRST = Epoch(epoch=1, seconds=0.5, elapsed=0.5)


def finished(path):
    with Run.writing(path, {"lr": 1.0}, "{}") as run:
        run.append_history(FIRST)
        write_weights(run.model_path, {"a": torch.zeros(3)}, {})
        run.write_predictions({"test": torch.zeros(2, 2)})
        run.write_metrics({"parts": {}})
        run.finish(RunInfo({"training": 1.0}))
    return run


def test_a_run_is_complete_only_once_finished(tmp_path):
    run = Run.create(tmp_path / "a" / "b")
    run.write_config({"lr": 0.1})
    with pytest.raises(UserError, match="not finished"):
        Run.open(run.path)
    run.write_split("{}")
    run.write_metrics({})
    run.model_path.write_bytes(b"weights")
    run.finish(RunInfo({"training": 1.0}))
    assert Run.open(run.path).config == {"lr": 0.1}
    assert Run.open(run.path).info.versions["torch"]


def test_a_model_that_changed_since_the_run_was_finished_is_noticed(tmp_path):
    run = Run.create(tmp_path / "a")
    run.model_path.write_bytes(b"weights")
    run.finish(RunInfo())
    run.check_model()
    run.model_path.write_bytes(b"weighty")
    with pytest.raises(UserError, match="checksum does not match"):
        run.check_model()


def test_history_grows_line_by_line(tmp_path):
    run = Run.create(tmp_path / "a")
    run.append_history(FIRST)
    assert run.history == [FIRST]
    run.append_history(replace(FIRST, epoch=2))
    assert run.history == [FIRST, replace(FIRST, epoch=2)]


def test_only_a_new_or_empty_folder_is_taken(tmp_path):
    (tmp_path / "empty").mkdir()
    Run.create(tmp_path / "empty")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"full.*not empty.*--out"):
        Run.create(tmp_path / "full")
    for path in ("file", "file/below"):
        with pytest.raises(UserError, match=r"file.*--out"):
            Run.create(tmp_path / path)


def test_an_unwritable_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(UserError, match="write permission"):
        Run.create(tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_what_is_not_a_run_is_said_so(tmp_path):
    with pytest.raises(UserError, match="is not a run"):
        Run.open(tmp_path)
    with pytest.raises(UserError, match="no run folder"):
        Run.open(tmp_path / "none")


def test_a_copy_that_was_interrupted_is_no_run_and_is_made_again(tmp_path, monkeypatch):
    with Run.writing(tmp_path / "a", {"lr": 1}, "{}") as run:
        for name in ("model.safetensors", "metrics.json"):
            (run.path / name).write_text("{}")
        run.finish(RunInfo())
    write = run_module.write_bytes

    def stop(path, content, mode=0o666):
        if path.name == "run.json":
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(run_module, "write_bytes", stop)
    with pytest.raises(KeyboardInterrupt):
        run.copy_to(tmp_path / "b")
    assert not Run.is_complete(tmp_path / "b")
    monkeypatch.setattr(run_module, "write_bytes", write)
    run.copy_to(tmp_path / "b")
    for path in run.path.iterdir():
        assert (tmp_path / "b" / path.name).read_bytes() == path.read_bytes()
    with pytest.raises(UserError, match="holds a finished run"):
        run.copy_to(tmp_path / "b")


def test_a_run_that_was_begun_goes_on_with_the_same_settings_only(tmp_path):
    """Whatever a killed process has left under way is taken away; the checkpoint stays."""
    with Run.writing(tmp_path / "a", {"lr": 1}, "{}") as run:
        run.append_history(FIRST)
        run.checkpoint_path.write_text("state")
        (run.path / ".writing-xyz").write_text("half")
    with pytest.raises(UserError, match="add --resume to resume the run in it"):
        Run.check_free(tmp_path / "a")
    for config, manifest, words in (
        ({"lr": 2}, "{}", "started with lr = 1, not 2"),
        ({"lr": 1, "epochs": 3}, "{}", "started with epochs = None, not 3"),
        ({"lr": 1}, "[]", "other samples"),
    ):
        with (
            pytest.raises(AnotherRun, match=words),
            Run.writing(tmp_path / "a", config, manifest, resume=True),
        ):
            pass
    assert run.history
    with Run.writing(tmp_path / "a", {"lr": 1}, "{}", resume=True):
        names = {path.name for path in run.path.iterdir()}
        assert names == {"config.toml", "split.json", "checkpoint.safetensors", ".lock"}
        run.finish(RunInfo())
    names = {path.name for path in run.path.iterdir()}
    assert names == {"config.toml", "split.json", "checksums.txt", "run.json"}


def test_a_run_says_when_it_was_begun_and_finished_however_often_it_was_resumed(tmp_path):
    with Run.writing(tmp_path / "a", {"lr": 1}, "{}") as run:
        pass
    os.utime(run.path / "config.toml", (1_700_000_000, 1_700_000_000))  # begun some time ago
    before = time.time()
    with Run.writing(tmp_path / "a", {"lr": 1}, "{}", resume=True):
        for name in ("model.safetensors", "metrics.json"):
            (run.path / name).write_text("{}")
        run.finish(RunInfo())
    assert run.info.begun == "2023-11-14T22:13:20Z"
    finished = datetime.strptime(run.info.finished, "%Y-%m-%dT%H:%M:%SZ")
    assert -1 < finished.replace(tzinfo=UTC).timestamp() - before < 60


def test_a_folder_where_a_run_ended_before_it_had_begun_is_free(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / ".writing-abc").touch()
    Run.check_free(tmp_path)
    with Run.writing(tmp_path, {}, "{}", resume=True):
        assert not (tmp_path / ".writing-abc").exists()


READ = {
    "config.toml": lambda run: run.config,
    "split.json": lambda run: run.split,
    "model.safetensors": lambda run: run.check_model(),
    "history.jsonl": lambda run: run.history,
    "metrics.json": lambda run: run.metrics,
    "predictions.safetensors": lambda run: run.predictions,
    "run.json": lambda run: run.info,
}


def test_sha256sum_agrees_with_the_checksums(tmp_path):
    path = finished(tmp_path / "run").path
    told = subprocess.run(
        ["sha256sum", "-c", "checksums.txt"], cwd=path, capture_output=True, text=True, check=True
    )
    assert sorted(told.stdout.split(": OK\n")) == ["", *sorted(READ)]


@pytest.mark.parametrize("name", READ)
def test_a_file_that_was_altered_is_noticed_when_it_is_read(tmp_path, name):
    run = finished(tmp_path / "run")
    READ[name](run)
    with (run.path / name).open("ab") as file:
        file.write(b" ")
    with pytest.raises(UserError, match=rf"{name}' has changed since the run was finished"):
        READ[name](run)
    for other in READ.keys() - {name}:
        READ[other](run)


def test_a_run_of_format_1_has_no_checksums_but_for_the_weights(tmp_path):
    run = finished(tmp_path / "run")
    (run.path / "checksums.txt").unlink()
    with pytest.raises(UserError, match=r"checksums\.txt is missing"):
        Run.open(run.path)
    info = json.loads((run.path / "run.json").read_text())
    del info["format"]
    (run.path / "run.json").write_text(json.dumps(info))
    old = Run.open(run.path)
    assert [bool(read(old)) for read in READ.values()].count(True) == len(READ) - 1
    run.model_path.write_bytes(b"other")
    with pytest.raises(UserError, match="checksum does not match"):
        old.check_model()


@pytest.mark.parametrize(
    ("number", "remedy"), [(3, "upgrade"), (0, "version of qunlearn that wrote it"), ("x", "'x'")]
)
def test_another_format_is_named_with_the_remedy(tmp_path, number, remedy):
    run = finished(tmp_path / "run")
    info = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**info, "format": number}))
    seal(run.path)
    with pytest.raises(UserError, match=rf"has format .*reads 1 to 2; .*{remedy}|{remedy}"):
        Run.open(run.path)


@pytest.mark.parametrize("text", ["", "rubbish\n", f"{'0' * 64}  ../run.json\n", f"{'0' * 64}\n"])
def test_checksums_that_are_none_are_said_so(tmp_path, text):
    run = finished(tmp_path / "run")
    (run.path / "checksums.txt").write_text(text)
    with pytest.raises(UserError, match=r"checksums\.txt' is damaged"):
        _ = run.metrics


WRITES = {
    "config.toml": lambda run: run.write_config({"lr": 1.0, "name": "x" * 5000}),
    "split.json": lambda run: run.write_split("{}" * 5000),
    "model.safetensors": lambda run: write_weights(run.model_path, {"a": torch.ones(5000)}, {}),
    "history.jsonl": lambda run: run.append_history(replace(FIRST, collapsed=("x" * 5000,))),
    "metrics.json": lambda run: run.write_metrics({"x": "x" * 5000}),
    "predictions.safetensors": lambda run: run.write_predictions({"test": torch.zeros(5000, 2)}),
    "run.json": lambda run: run.finish(RunInfo(method="x" * 5000)),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_full_disk_is_one_sentence_and_leaves_what_was_there(tmp_path, name):
    with Run.writing(tmp_path / "run", {"lr": 1.0}, "{}") as run:
        pass
    before = {path.name: path.read_bytes() for path in run.path.iterdir()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        with pytest.raises(Failure, match=rf"{name}' could not be written: File too large"):
            WRITES[name](run)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    after = {path.name: path.read_bytes() for path in run.path.iterdir()}
    # The history only grows, and a run that is not finished is known by what is not there.
    allowed = {"history.jsonl", "checksums.txt"}
    assert {k: v for k, v in after.items() if k not in allowed} == before
    assert not Run.is_complete(run.path)


@pytest.mark.parametrize("name", WRITES)
def test_a_folder_that_was_removed_is_one_sentence(tmp_path, name):
    with Run.writing(tmp_path / "run", {"lr": 1.0}, "{}") as run:
        pass
    shutil.rmtree(run.path)
    with pytest.raises(Failure, match=r"could not be written: No such file or directory"):
        WRITES[name](run)
    assert list(tmp_path.iterdir()) == []


def test_what_another_process_writes_is_not_thrown_away(tmp_path):
    with Run.writing(tmp_path / "run", {"lr": 1.0}, "{}"):
        with pytest.raises(UserError, match="Another process is writing to"):
            Run.discard(tmp_path / "run")
        assert (tmp_path / "run" / "config.toml").is_file()


def test_a_folder_with_more_than_a_run_is_not_thrown_away(tmp_path):
    run = finished(tmp_path / "run")
    with pytest.raises(UserError, match="holds a finished run and is not overwritten"):
        Run.discard(run.path)
    (run.path / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match=r"also holds 'thesis.txt' and is not overwritten"):
        Run.discard(run.path, finished=True)
    assert Run.is_complete(run.path)


def test_a_run_being_thrown_away_is_no_run_from_the_first_moment(tmp_path, monkeypatch):
    run = finished(tmp_path / "run")

    def stop(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "opened", stop)
    with pytest.raises(KeyboardInterrupt):
        Run.discard(run.path, finished=True)
    assert not Run.is_complete(run.path)


@pytest.mark.parametrize("left", ["checkpoint.safetensors", ".writing-0123456789abcdef"])
def test_a_kill_after_the_last_file_leaves_a_run_that_works_and_is_tidied(tmp_path, left):
    run = finished(tmp_path / "run")
    (run.path / left).write_text("state")
    assert Run.open(run.path).metrics == {"parts": {}}
    before = {name: (run.path / name).read_bytes() for name in READ}
    with Run.writing(run.path, {"lr": 1.0}, "{}", resume=True):
        assert not (run.path / left).exists()
    assert {name: (run.path / name).read_bytes() for name in READ} == before
