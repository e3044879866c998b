"""A disk that is full, or a folder that is gone: one sentence, exit code 1, nothing that loads."""

import resource
import shutil

from conftest import SMALL, flags

from qunlearn.store.run import Run

WORDS = flags({**SMALL, "epochs": 1})


def one_sentence(told, says):
    code, out, err = told
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert says in err


def test_a_disk_that_gets_full(qunlearn, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        told = qunlearn("train", *WORDS, "--model", "resnet18", "--out", tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    one_sentence(told, "checkpoint.safetensors' could not be written: File too large")
    assert qunlearn("evaluate", tmp_path / "run")[0] == 2


def test_a_folder_that_is_removed_on_the_way(qunlearn, tmp_path, monkeypatch):
    append = Run.append_history

    def removed(run, row):
        shutil.rmtree(run.path)
        append(run, row)

    monkeypatch.setattr(Run, "append_history", removed)
    told = qunlearn("train", *WORDS, "--out", tmp_path / "run")
    one_sentence(told, "could not be written: No such file or directory")
    assert list(tmp_path.iterdir()) == []


def test_what_the_system_refuses_otherwise(qunlearn):
    one_sentence(qunlearn("evaluate", "x" * 300), "File name too long")
