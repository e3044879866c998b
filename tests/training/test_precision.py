import multiprocessing
import subprocess
import sys
from types import SimpleNamespace

import pytest

from qunlearn.errors import UserError
from qunlearn.training import precision
from qunlearn.training.config import ComputeConfig
from qunlearn.training.devices import make_fabric


@pytest.fixture(autouse=True)
def fresh():
    precision.probe.cache_clear()
    yield
    precision.probe.cache_clear()


def test_a_trial_step_that_dies_of_an_illegal_instruction_is_one_sentence(monkeypatch):
    monkeypatch.setattr(
        precision, "PROBE", "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    )
    with pytest.raises(UserError, match=r"'bf16' on 'cpu' .*SIGILL.*--precision 32"):
        precision.check(ComputeConfig(precision="bf16"), "cpu")


def test_a_trial_step_that_fails_says_why(monkeypatch):
    monkeypatch.setattr(precision, "PROBE", "raise SystemExit('no such unit')")
    with pytest.raises(UserError, match=r"no such unit"):
        precision.check(ComputeConfig(precision="bf16"), "cpu")


def test_a_trial_step_that_works_is_accepted_and_tried_once(monkeypatch):
    calls = []
    monkeypatch.setattr(
        subprocess, "run", lambda *a, **k: calls.append(a) or SimpleNamespace(returncode=0)
    )
    for _ in range(2):
        precision.check(ComputeConfig(precision="bf16"), "cpu")
    assert len(calls) == 1


def test_full_precision_needs_no_trial(monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("tried"))
    precision.check(ComputeConfig(), "cpu")


BEFORE = """
import contextlib, torch
asked, layouts, convolve = [], [], torch.nn.Conv2d.forward
def forward(layer, x):
    layouts.append((asked[-1], x.is_contiguous(memory_format=torch.channels_last)))
    return FACTOR * convolve(layer, x)
torch.nn.Conv2d.forward = forward
torch.autocast = lambda *a, **k: asked.append((*a, *k.values())) or contextlib.nullcontext()
"""
AFTER = """
assert layouts == [(("cpu", torch.bfloat16), last) for last in (False, True)], layouts
assert len(list(net.parameters())) == 6
assert all(p.grad.any() for p in net.parameters())
"""


@pytest.mark.parametrize(("factor", "works"), [("1", True), ("float('nan')", False)])
def test_the_trial_is_a_real_training_step(factor, works):
    """In the precision asked for, in both layouts; autocast itself is left out, for any machine."""
    program = BEFORE.replace("FACTOR", factor) + precision.PROBE + AFTER * works
    context = multiprocessing.get_context("fork")  # which has torch loaded, and may change it
    mine, its = context.Pipe()
    trial = context.Process(target=run_program, args=(program, its))
    trial.start()
    assert mine.poll(60)  # nothing is received of a process that died
    trial.join()
    assert mine.recv() == (None if works else "AssertionError")


def run_program(program, answer):
    """Run it as `python -c` does, in a process of its own; answers what it raised."""
    sys.argv = ["-c", "cpu", "bfloat16"]
    raised = None
    try:
        exec(program, {"__name__": "__main__"})
    except BaseException as error:
        raised = type(error).__name__
    answer.send(raised)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"accelerator": "tpux"}, "Unknown accelerator 'tpux'"),
        ({"accelerator": "mps"}, "'mps' is not available here"),
    ],
)
def test_devices_that_are_not_there_are_named(settings, says, monkeypatch):
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    with pytest.raises(UserError, match=says):
        make_fabric(ComputeConfig(**settings))
