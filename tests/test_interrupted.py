"""Runs that are killed at any instant and gone on with come out the same, bit for bit."""

import json
import os

import interruptions
import pytest
from conftest import made_once

TIMES = {"seconds", "elapsed", "runtime", "begun", "finished"}
TIMES |= {"sha256"}  # the checksum of a table has its times in it


def killed(folder, instants, command):
    """Make a command whole, and again with kills; the folders of both."""
    child = os.fork()  # which has everything loaded
    if not child:
        interruptions.alone(folder / "log", folder, instants, 7, list(map(str, command)))
    _, status = os.waitpid(child, 0)
    assert status == 0, (folder / "log").read_text()
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
    base = made_once(tmp_path_factory, "origin", lambda base: killed(base, 0, TRAIN.split()))
    return base / "whole"


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
    command += " --set calibrated.epochs=2 --threads 1"
    whole, others = killed(tmp_path, instants, command.split())
    table = timeless(json.loads((whole / "table.json").read_text()))
    for other in others:
        assert timeless(json.loads((other / "table.json").read_text())) == table
        for run in whole.glob("cells/*/*"):
            assert contents(other / run.relative_to(whole)) == contents(run)
