"""Runs that are killed at any instant and gone on with come out the same, bit for bit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).with_name("interruptions.py")
TIMES = {"seconds", "elapsed", "runtime", "begun", "finished"}
TIMES |= {"sha256"}  # the checksum of a table has its times in it


def killed(folder, instants, command):
    """Make a command whole, and again with kills; the folders of both."""
    words = [sys.executable, HARNESS, folder, str(instants), "7", *command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr
    return folder / "whole", [folder / str(i) for i in range(instants)]


def timeless(value):
    """The same without what is measured by the clock."""
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k not in TIMES}
    return [timeless(v) for v in value] if isinstance(value, list) else value


def contents(run):
    """Everything that a run consists of, but for times."""
    names = sorted(p.name for p in run.iterdir())
    exact = {n: (run / n).read_bytes() for n in names if n.endswith(("safetensors", "toml"))}
    rows = [timeless(json.loads(line)) for line in (run / "history.jsonl").open()]
    plain = {n: timeless(json.loads((run / n).read_text())) for n in names if n.endswith(".json")}
    return names, exact, rows, plain


TRAIN = "train --subset 120 --model cnn --epochs 3 --batch-size 24 --threads 1 --out OUT"
FORGET = "forget {origin} --random 0.2 --epochs 3 --threads 1 --accept --out OUT --method"


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    folder = tmp_path_factory.mktemp("origin")
    whole, _ = killed(folder, 0, TRAIN.split())
    return whole


@pytest.mark.parametrize(
    "network", ["--quantizer lsq+", "--quantizer dsq", "--width 0.125 --model resnet18"]
)
def test_a_killed_training_goes_on_to_the_same_run(tmp_path, network, instants):
    whole, others = killed(tmp_path, instants, f"{TRAIN} {network}".split())
    for other in others:
        assert contents(other) == contents(whole)


@pytest.mark.parametrize("method", ["calibrated", "oeu", "salun", "qmul", "l1-sparse", "retrain"])
def test_a_killed_forgetting_goes_on_to_the_same_run(tmp_path, origin, method, instants):
    command = [*FORGET.format(origin=origin).split(), method]
    whole, others = killed(tmp_path, instants, command)
    for other in others:
        assert contents(other) == contents(whole)


def test_a_killed_comparison_goes_on_to_the_same_table(tmp_path, origin, instants):
    command = f"compare {origin} --random 0.2 --methods ga,calibrated --seeds 2 --out OUT"
    whole, others = killed(tmp_path, instants, command.split())
    table = timeless(json.loads((whole / "table.json").read_text()))
    for other in others:
        assert timeless(json.loads((other / "table.json").read_text())) == table
        for run in whole.glob("cells/*/*"):
            assert contents(other / run.relative_to(whole)) == contents(run)
