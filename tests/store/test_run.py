import os

import pytest

from qunlearn.errors import UserError
from qunlearn.store import run as run_module
from qunlearn.store.run import AnotherRun, Run


def test_a_run_is_complete_only_once_finished(tmp_path):
    run = Run.create(tmp_path / "a" / "b")
    run.write_config({"lr": 0.1})
    with pytest.raises(UserError, match="not finished"):
        Run.open(run.path)
    run.write_split("{}")
    run.write_metrics({})
    run.model_path.write_bytes(b"weights")
    run.finish({"seconds": {"training": 1.0}})
    assert Run.open(run.path).config == {"lr": 0.1}
    assert Run.open(run.path).info["versions"]["torch"]


def test_a_model_that_changed_since_the_run_was_finished_is_noticed(tmp_path):
    run = Run.create(tmp_path / "a")
    run.model_path.write_bytes(b"weights")
    run.finish({})
    run.check_model()
    run.model_path.write_bytes(b"weighty")
    with pytest.raises(UserError, match="not the one"):
        run.check_model()


def test_history_grows_line_by_line(tmp_path):
    run = Run.create(tmp_path / "a")
    run.append_history({"epoch": 1})
    run.append_history({"epoch": 2})
    assert run.history == [{"epoch": 1}, {"epoch": 2}]


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
        run.finish({})
    write = run_module.write_bytes

    def stop(path, content):
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
    with pytest.raises(UserError, match="more than an unfinished run"):
        run.copy_to(tmp_path / "b")


def test_a_run_that_was_begun_goes_on_with_the_same_settings_only(tmp_path):
    """Whatever a killed process has left under way is taken away; the checkpoint stays."""
    with Run.writing(tmp_path / "a", {"lr": 1}, "{}") as run:
        run.append_history({"epoch": 1})
        run.checkpoint_path.write_text("state")
        (run.path / ".writing-xyz").write_text("half")
    with pytest.raises(UserError, match="go on with the run in it with --resume"):
        Run.check_free(tmp_path / "a")
    for config, manifest, words in (
        ({"lr": 2}, "{}", "begun with lr = 1, not 2"),
        ({"lr": 1, "epochs": 3}, "{}", "begun with epochs = None, not 3"),
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
        run.finish({})
    assert {path.name for path in run.path.iterdir()} == {"config.toml", "split.json", "run.json"}


def test_a_folder_where_a_run_ended_before_it_had_begun_is_free(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / ".writing-abc").touch()
    Run.check_free(tmp_path)
    with Run.writing(tmp_path, {}, "{}", resume=True):
        assert not (tmp_path / ".writing-abc").exists()
