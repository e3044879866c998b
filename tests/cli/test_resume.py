"""`--resume`, as a user would try it."""

import pytest
from conftest import SMALL, flags

from qunlearn.store.lock import locked
from qunlearn.training.checkpoint import Checkpointer


@pytest.fixture
def ctrl_c(monkeypatch):
    """The user presses it right after the first checkpoint."""
    keep = Checkpointer.save

    def pressed(self, *arguments):
        keep(self, *arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(Checkpointer, "save", pressed)
    return monkeypatch


def test_what_was_interrupted_says_how_to_go_on_and_does(qunlearn, ctrl_c, tmp_path, run_folder):
    forget = ("forget", run_folder, "--random", "0.1", "--epochs", 2, "--threads", 1)
    compare = ("compare", run_folder, "--random", "0.1", "--methods", "ga")
    for words in (("train", *flags(SMALL)), forget, (*compare, "--seeds", 1)):
        out = tmp_path / words[0]
        with ctrl_c.context():
            code, _, said = qunlearn(*words, "--out", out)
        assert code == 1
        assert said == (
            f"qunlearn: Interrupted; resume with `qunlearn {words[0]} --resume --out {out}`.\n"
        )
    ctrl_c.undo()
    for name, *more in (("train",), ("forget", "--accept"), ("compare",)):
        words = (name, "--resume", "--out", tmp_path / name, "--json", *more)
        code, printed, said = qunlearn(*words)
        assert (code, said) == (0, "")
        # What is finished is shown again, and nothing is made anew.
        assert qunlearn(*words) == (0, printed, "")


def test_resume_with_other_settings_or_nothing_to_go_on_with(qunlearn, tmp_path, run_folder):
    code, _, said = qunlearn("train", "--resume", "--out", tmp_path / "none")
    assert (code, "There is nothing to resume in" in said) == (2, True)
    code, _, said = qunlearn("train", "--resume")
    assert (code, "name its folder with --out" in said) == (2, True)
    code, _, said = qunlearn("train", "--resume", "--out", run_folder, "--lr", "0.5")
    assert (code, "started with lr = 0.1, not 0.5" in said) == (2, True)
    assert not (tmp_path / "none").exists()


def test_resume_of_what_ended_before_it_had_begun_begins_it(qunlearn, tmp_path):
    (tmp_path / "run").mkdir()
    words = ("train", *flags(SMALL), "--resume", "--out", tmp_path / "run")
    assert qunlearn(*words)[0] == 0


def test_two_at_one_folder_one_works_and_one_is_told(qunlearn, tmp_path, run_folder):
    (tmp_path / "run").mkdir()
    (tmp_path / "comparison").mkdir()
    compare = ("compare", run_folder, "--random", "0.1", "--methods", "ga")
    with locked(tmp_path / "run"), locked(tmp_path / "comparison"):
        for words in (
            ("train", *flags(SMALL), "--out", tmp_path / "run"),
            (*compare, "--out", tmp_path / "comparison"),
        ):
            code, _, said = qunlearn(*words)
            assert (code, "Another process is writing to" in said) == (2, True)
