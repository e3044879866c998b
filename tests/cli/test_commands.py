"""The command line as a person would use it."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
from conftest import SMALL, flags
from forked import Started

from qunlearn.cli.main import COMMANDS
from qunlearn.errors import UserError
from qunlearn.runs.config import AdoptConfig, TrainConfig
from qunlearn.store import toml
from qunlearn.store.run import Run
from qunlearn.study.config import CompareConfig


def test_train_prints_json_that_is_the_run_folders_content(qunlearn, tmp_path):
    code, out, err = qunlearn("train", *flags(SMALL), "--out", tmp_path / "run", "--json")
    assert (code, err) == (0, "")
    result = json.loads(out)
    run = Run.open(tmp_path / "run")
    assert result["metrics"] == run.metrics
    assert result["seconds"]["training"] > 0


def test_train_prints_a_table_for_people(qunlearn, tmp_path):
    code, out, _ = qunlearn("train", *flags(SMALL), "--out", tmp_path / "run")
    assert code == 0
    assert all(word in out for word in ("trained on", "held out", "test", "180", "20", "450"))


def test_a_run_finds_its_data_from_anywhere(qunlearn, tmp_path, monkeypatch, digits):
    data = digits.data
    images, test = data.images[:100].numpy(), data.images[-50:].numpy()
    labels = {"y_train": data.labels[:100].numpy(), "y_test": data.labels[-50:].numpy()}
    home = tmp_path / "home"
    (home / "data").mkdir(parents=True)
    np.savez(home / "data" / "mine.npz", x_train=images, x_test=test, **labels)
    ids = "\n".join(f"train/{i},{i % 2}" for i in range(100))
    (home / "users.csv").write_text(f"id,user\n{ids}\n")
    monkeypatch.chdir(home)
    words = flags({**SMALL, "subset": 100, "dataset": "data/mine.npz", "metadata": "users.csv"})
    assert qunlearn("train", *words, "--out", "runs/mine")[0] == 0
    monkeypatch.chdir(tmp_path)
    code, _, told = qunlearn("evaluate", "home/runs/mine")
    assert code == 0, told
    asked = ["--where", "user == 1", "--method", "ga", "--out", "elsewhere"]
    code, _, told = qunlearn("forget", "home/runs/mine", *asked)
    assert code == 0, told
    assert qunlearn("evaluate", "elsewhere")[0] == 0


def test_a_runs_config_makes_it_again_and_flags_win_over_it(qunlearn, tmp_path, run_folder):
    config = run_folder / "config.toml"
    assert qunlearn("train", "--config", config, "--out", tmp_path / "again")[0] == 0
    again = (tmp_path / "again" / "model.safetensors").read_bytes()
    assert again == (run_folder / "model.safetensors").read_bytes()

    words = ("--config", config, "--epochs", 1, "--per-channel")
    assert qunlearn("train", *words, "--out", tmp_path / "other")[0] == 0
    other = TrainConfig.parse(Run.open(tmp_path / "other").config)
    assert other == TrainConfig.parse({**SMALL, "epochs": 1, "per_channel": True})


def test_the_output_folder_may_stand_in_the_file(qunlearn, tmp_path):
    file = tmp_path / "c.toml"
    file.write_text(toml.dumps({**SMALL, "out": str(tmp_path / "run")}))
    assert qunlearn("train", "--config", file)[0] == 0
    assert Run.open(tmp_path / "run").metrics


def test_evaluate_repeats_the_runs_own_figures(qunlearn, run_folder):
    code, out, _ = qunlearn("evaluate", run_folder, "--json")
    assert code == 0
    assert json.loads(out)["metrics"] == Run.open(run_folder).metrics


def test_describe_shows_layers_and_sizes(qunlearn, run_folder):
    code, out, _ = qunlearn("describe", run_folder)
    assert code == 0
    assert "3" in [line.split()[0] for line in out.splitlines() if line.strip()]  # a convolution
    assert "times smaller" in out
    described = json.loads(qunlearn("describe", run_folder, "--json")[1])
    assert described["layers"][0]["weight_bits"] == 8
    assert described["layers"][1]["weight_bits"] == 4


def test_adopt_says_what_is_missing(qunlearn, tmp_path):
    code, _, err = qunlearn("adopt", "--weights", tmp_path / "w", "--out", tmp_path / "run")
    assert (code, err.count("\n")) == (2, 1)
    assert "--held-out" in err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(qunlearn, command):
    code, out, _ = qunlearn(command, "--help")
    assert code == 0
    assert f"qunlearn {command}" in out.split("Example", 1)[1]


def test_the_list_of_commands_says_what_each_commands_own_help_says():
    for name, summary in COMMANDS.items():
        doc = importlib.import_module(f"qunlearn.cli.{name}").command.__doc__
        assert doc.splitlines()[0] == summary


CONFIGS = {"train": TrainConfig, "adopt": AdoptConfig, "compare": CompareConfig}


@pytest.mark.parametrize("command", CONFIGS)
def test_every_setting_is_shown_with_its_whole_description(qunlearn, command, monkeypatch):
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 500)
    _, out, _ = qunlearn(command, "--help")
    for name, field in CONFIGS[command].model_fields.items():
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        if not extra.get("hidden"):
            spelt = name if extra.get("argument") else f"--{name.replace('_', '-')}"
            assert extra.get("flag", spelt) in out
            assert field.description in out, name
    assert command == "compare" or "[required]" in out


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom qunlearn.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('torch', 'numpy', 'sklearn', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip().endswith("[]")


def test_version(qunlearn):
    from qunlearn import __version__

    assert qunlearn("--version")[:2] == (0, f"qunlearn {__version__}\n")
    project = Path(__file__).parents[2]
    assert tomllib.loads((project / "pyproject.toml").read_text())["project"]["version"] == (
        __version__
    )
    changed = re.search(r"^## (\S+)", (project / "CHANGELOG.md").read_text(), re.M)
    assert changed[1] == __version__


def test_ctrl_c_is_one_sentence_and_leaves_no_loadable_run(tmp_path):
    words = ["train", *map(str, flags({**SMALL, "epochs": 1000})), "--out", "run"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        command = Started(words, tmp_path, tmp_path / "printed")
    finally:
        signal.signal(signal.SIGINT, before)
    while not (tmp_path / "run" / "history.jsonl").exists():
        assert command.process.is_alive(), command.log.read_text()
        time.sleep(0.05)
    os.kill(command.group, signal.SIGINT)
    message = "qunlearn: Interrupted; resume with `qunlearn train --resume --out run`.\n"
    assert command.end(120) == (1, message)
    with pytest.raises(UserError, match="not finished"):
        Run.open(tmp_path / "run")


def test_nothing_but_the_result_is_written_when_piped(tmp_path):
    """No progress bar, no warnings: a real process with pipes instead of a terminal."""
    words = [*map(str, flags(SMALL)), "--out", str(tmp_path / "run"), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "qunlearn.cli.main", "train", *words], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    json.loads(done.stdout)
