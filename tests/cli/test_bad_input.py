"""Asked wrongly: one sentence, exit code 2, nothing written."""

import os
import re
import shutil
import sys

import pytest
import torch
from conftest import SMALL, flags
from safetensors.torch import save_file

from qunlearn.runs import train

WORDS = flags(SMALL)


def refuse(qunlearn, tmp_path, *words):
    """The sentence that is said; checks that it is one, and that nothing was written."""
    before = sorted(tmp_path.rglob("*"))
    code, out, err = qunlearn(*words)
    assert (code, out) == (2, "")
    assert err.startswith("qunlearn: ")
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
    return err


@pytest.mark.parametrize(
    ("flag", "value", "says"),
    [
        ("dataset", "cifar11", "did you mean 'cifar1"),
        ("model", "resnet81", "did you mean 'resnet18'"),
        ("model", "nowhere.at.all:net", "nowhere.at.all:net"),
        ("quantizer", "lsqq", "did you mean 'lsq"),
        ("weight-bits", "1", "weight_bits = '1' .* 2 to 8"),
        ("weight-bits", "9", "weight_bits = '9' .* 2 to 8"),
        ("act-bits", "1", "act_bits = '1' .* 2 to 8"),
        ("act-bits", "9", "act_bits = '9' .* 2 to 8"),
        ("first-last-bits", "0", "first_last_bits = '0' .* 2 to 8"),
        ("width", "0", "width = '0' .* more than 0"),
        ("epochs", "0", "epochs = '0'"),
        ("seed", "99999999999999999999", "seed = '99999999999999999999'"),
        ("lr", "1e308", "lr = '1e308'"),
        ("weight-decay", "1e308", "weight_decay = '1e308'"),
        ("epochs", "99999999999", "epochs = '99999999999'"),
        ("threads", "99999999999", "threads = '99999999999'"),
        ("epochs", "many", "epochs = 'many' .* whole number"),
        ("warmup", "2", "warmup = '2' .* fewer than the 2 epochs"),
        ("batch-size", "1", "batch size of 1 .* 4 or more"),
        ("model", "plain_net:too_few", "one for each class"),
        ("model", "plain_net:for_larger_images", r"fails on images of shape \(1, 8, 8\)"),
        ("model", ".plain_net:make", "cannot be found"),
        ("start-from", "none", "no run folder 'none'"),
        ("data-dir", "somewhere", "come with scikit-learn"),
        ("lr", "-1", "lr = '-1'"),
        ("held-out", "1", "held_out = '1'"),
        ("subset", "100000", "100000"),
        ("precision", "64", "precision = '64'"),
        ("accelerator", "abacus", "Unknown accelerator 'abacus'"),
        ("metadata", "none.csv", "none.csv"),
        ("config", "none.toml", "none.toml"),
    ],
)
def test_a_wrong_value_is_named_with_the_remedy(qunlearn, tmp_path, flag, value, says):
    words = [*WORDS, f"--{flag}", value, "--out", tmp_path / "run"]
    assert re.search(says, refuse(qunlearn, tmp_path, "train", *words))


def test_few_bits_without_a_quantizer_are_a_contradiction(qunlearn, tmp_path):
    for flag in ("weight-bits", "act-bits", "first-last-bits"):
        words = ["train", *WORDS, "--quantizer", "none", f"--{flag}", 2, "--out", tmp_path / "run"]
        name = flag.replace("-", "_")
        assert f"{name} = 2 and quantizer = 'none'" in refuse(qunlearn, tmp_path, *words)


def python_runs_out():
    return bytearray(2**62)


def torch_runs_out():
    return torch.empty(2**60)


def gpu_runs_out():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.")


@pytest.mark.parametrize("runs_out", [python_runs_out, torch_runs_out, gpu_runs_out])
def test_too_little_memory_is_one_sentence(qunlearn, monkeypatch, tmp_path, runs_out):
    monkeypatch.setattr(train, "train_run", lambda *_, **__: runs_out())
    code, out, told = qunlearn("train", *WORDS, "--out", tmp_path / "run")
    assert (code, out, list(tmp_path.iterdir())) == (1, "", [])
    assert told == (
        "qunlearn: There is not enough memory; use a smaller batch, data set or network.\n"
    )


def test_other_errors_are_not_taken_for_too_little_memory(qunlearn, monkeypatch, tmp_path):
    def fails(*_, **__):
        raise RuntimeError("another one")

    monkeypatch.setattr(train, "train_run", fails)
    code, _, err = qunlearn("train", *WORDS, "--out", tmp_path / "run")
    assert code == 1
    assert "RuntimeError: another one" in err
    assert "This is a bug in qunlearn" in err


def test_an_unknown_command_or_flag_is_named(qunlearn, tmp_path):
    assert "did you mean 'train'" in refuse(qunlearn, tmp_path, "trian")
    assert "--epoch" in refuse(qunlearn, tmp_path, "train", "--epoch", 3, "--out", tmp_path / "a")


def test_data_files_that_are_missing_truncated_or_absent(qunlearn, tmp_path):
    words = ["train", "--dataset", "cifar10", "--out", tmp_path / "run"]
    assert "--data-dir" in refuse(qunlearn, tmp_path, *words)
    folder = tmp_path / "data" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    words += ["--data-dir", tmp_path / "data"]
    assert "data_batch_1.bin" in refuse(qunlearn, tmp_path, *words)
    for k in range(1, 6):
        (folder / f"data_batch_{k}.bin").write_bytes(b"")
        os.truncate(folder / f"data_batch_{k}.bin", 30_730_000)
    (folder / "test_batch.bin").write_bytes(b"\0" * 3000)
    assert "test_batch.bin" in refuse(qunlearn, tmp_path, *words)
    (folder / "test_batch.bin").write_bytes(b"\x63" * 3073 * 10_000)  # labels of 99
    assert "test_batch.bin" in refuse(qunlearn, tmp_path, *words)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("epocs = 3", "did you mean 'epochs'"),
        ("epochs = ", "not valid TOML"),
        ("epochs = 'x'", "epochs = 'x'"),
        ("[train]\nepochs = 3", "'train'"),
        ("weight-bits = 4\nweight_bits = 8", "set twice"),
    ],
)
def test_a_malformed_or_misspelt_config(qunlearn, tmp_path, text, says):
    (tmp_path / "c.toml").write_text(text)
    words = ["train", "--config", tmp_path / "c.toml", "--out", tmp_path / "run"]
    assert says in refuse(qunlearn, tmp_path, *words)


def test_an_output_folder_that_cannot_be_used(qunlearn, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    assert "not empty" in refuse(qunlearn, tmp_path, "train", *WORDS, "--out", tmp_path / "full")
    (tmp_path / "file").touch()
    said = refuse(qunlearn, tmp_path, "train", *WORDS, "--out", tmp_path / "file" / "below")
    assert "not a folder with write permission" in said


def test_an_output_folder_with_an_impossible_name(qunlearn, tmp_path):
    said = refuse(qunlearn, tmp_path, "train", *WORDS, "--out", tmp_path / ("x" * 300))
    assert "not a valid path" in said


def test_a_missing_output_folder_is_asked_for(qunlearn, tmp_path):
    assert "--out" in refuse(qunlearn, tmp_path, "train", *WORDS)


@pytest.mark.parametrize("command", ["evaluate", "describe"])
def test_a_model_that_is_corrupt_foreign_or_gone(qunlearn, tmp_path, run_folder, command):
    copied = shutil.copytree(run_folder, tmp_path / "run")
    path = copied / "model.safetensors"
    whole = bytearray(path.read_bytes())
    whole[-5] ^= 1  # one bit, in a tensor
    path.write_bytes(whole)
    assert "its checksum does not match" in refuse(qunlearn, tmp_path, command, copied)
    path.write_bytes(whole[:1000])
    assert "safetensors" in refuse(qunlearn, tmp_path, command, copied)
    save_file({"x": torch.zeros(3)}, path)
    assert "qunlearn adopt" in refuse(qunlearn, tmp_path, command, copied)
    path.unlink()
    assert "model.safetensors is missing" in refuse(qunlearn, tmp_path, command, copied)
    assert "name the run folder" in refuse(qunlearn, tmp_path, command, copied / "split.json")


def test_what_is_not_a_run(qunlearn, tmp_path):
    for command in ("evaluate", "describe"):
        assert "no run folder" in refuse(qunlearn, tmp_path, command, tmp_path / "none")
        assert "is not a run" in refuse(qunlearn, tmp_path, command, tmp_path)


def test_a_module_that_cannot_be_imported_is_the_users(qunlearn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python itself writes beside a module
    (tmp_path / "mine_is_wrong.py").write_text("def net(:\n")
    said = refuse(
        qunlearn, tmp_path, "train", *WORDS, "--model", "mine_is_wrong:net", "--out", tmp_path / "r"
    )
    assert "cannot be imported: SyntaxError" in said
    (tmp_path / "mine_fails.py").write_text("def net():\n    return nowhere\n")
    words = ("--model", "mine_fails:net", "--out", tmp_path / "r")
    said = refuse(qunlearn, tmp_path, "train", *WORDS, *words)
    assert "raised NameError" in said
    assert "mine_fails.py, line 2" in said


def test_unseen_samples_that_are_not_there_are_missed_before_anything_is_written(
    qunlearn, tmp_path, run_folder
):
    share = ("--set", "unseen=held_out:0.001")
    words = ("forget", run_folder, "--random", 0.1, *share, "--threads", 1, "--out", tmp_path / "r")
    assert "'held_out:0.001' has 0 of retained classes; use --set" in refuse(
        qunlearn, tmp_path, *words
    )


def test_a_setting_of_a_method_is_no_code_of_ones_own(qunlearn, tmp_path, run_folder):
    file = tmp_path / "c.toml"
    for methods, is_code in (("calibrated[unseen=test:0.2]", False), ("mine:method[lr=1]", True)):
        file.write_text(f'run = "{run_folder}"\nmethods = "{methods}"\n')
        said = refuse(qunlearn, tmp_path, "compare", "--config", file, "--out", tmp_path / "out")
        assert ("code of your own" in said) == is_code, said  # what else is said: nothing to forget


def test_brackets_hide_no_code_in_a_file(qunlearn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "c.toml"
    (tmp_path / "[mine.py").write_text("raise SystemExit('it was run')\n")
    file.write_text('model = "[mine:net]"\n')
    words = flags({name: value for name, value in SMALL.items() if name != "model"})
    words = ("train", *words, "--config", file, "--out", tmp_path / "r")
    assert "code of your own" in refuse(qunlearn, tmp_path, *words)


def test_a_wrong_name_in_a_file_of_ones_own_is_named_when_resuming_too(qunlearn, tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("epoch = 1\n")
    words = ("train", *WORDS, "--config", file, "--resume", "--out", tmp_path / "r")
    assert "Unknown setting 'epoch'" in refuse(qunlearn, tmp_path, *words)


def test_a_folder_whose_name_is_no_text(qunlearn, tmp_path):
    out = tmp_path / os.fsdecode(b"x\xff")
    for words in (("train", *WORDS), ("demo",)):
        assert "is not UTF-8" in refuse(qunlearn, tmp_path, *words, "--out", out)
