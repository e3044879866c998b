"""Checks of a method of forgetting, on a small 4-bit network that knows some digits."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qunlearn.data import Split, load_dataset
from qunlearn.errors import UserError
from qunlearn.methods import Job, Method, MethodConfig, find_method
from qunlearn.models import ModelSpec
from qunlearn.quant import QuantSpec, quantize
from qunlearn.testing.tensors import copied, difference, nonfinite
from qunlearn.training.checkpoint import Checkpointer
from qunlearn.training.config import ComputeConfig
from qunlearn.training.devices import make_fabric
from qunlearn.training.train import train

FAST: Mapping[str, Any] = {"epochs": 2, "batch_size": 30, "samples": 20}
"""The settings of the trial runs, where a method has them and the caller names no others."""

IMPOSSIBLE: Mapping[str, tuple[float, ...]] = {
    "lr": (0.0, -0.1, 1e39, float("inf"), float("nan")),
    "epochs": (0, -1, 10**6 + 1),
}
"""Values of common settings that no method may accept."""

MARK = 1e4
"""The pixels of samples that must not be trained on, far above all others."""


def check_method(name: str, **settings: Any) -> None:
    """Check that a method keeps what `qunlearn forget` and `compare` rely on.

    Its settings have defaults, descriptions, bounds and possible search ranges. It changes the
    network and leaves it finite, also for a single sample and for a whole class. The same seed
    gives the same weights, bit for bit, also after an interruption at any step. It trains on no
    sample that is held out, of the test part or forgotten earlier. The global random state stays
    as it was.

    Args:
        name: As `qunlearn forget --method` takes it: a method's name, or `module:name`.
        **settings: Settings for the trial runs; 2 epochs in batches of 30 by default, and the like.

    Raises:
        AssertionError: With a sentence about the first thing that is not so.

    Example:
        >>> check_method("ft", epochs=1)
    """
    method = find_method(name)
    _check_settings(method)
    known = method.config.model_fields
    config = method.config.parse({k: v for k, v in FAST.items() if k in known} | settings)
    trial = _Trial(method, config)
    split = _digits().forget_random(0.1)
    random_state = torch.get_rng_state()
    first = trial.run(split)
    assert torch.equal(torch.get_rng_state(), random_state), trial.says(
        "changes torch's global random state; draw from a generator of its own, made from the seed"
    )
    assert difference(copied(_network()), first), trial.says("leaves the network as it was")
    other = difference(first, trial.run(split))
    assert not other, trial.says(f"gives other weights in a second run with the same seed: {other}")
    _check_resuming(trial, split, first)
    single = _digits().forget_ids([split.data.ids[int(split.forget[0])]])
    for what, few in (("a single sample", single), ("a class", _digits().forget_class(3))):
        broken = nonfinite(trial.run(few))
        assert not broken, trial.says(f"makes {broken} non-finite when {what} is to be forgotten")
    _check_samples(trial)


def _check_settings(method: Method) -> None:
    config, says = method.config, _Trial(method, None).says
    assert issubclass(config, MethodConfig), says("has settings that are no MethodConfig")
    assert method.source, says("has no source; name who published it")
    try:
        config.parse({})
    except UserError as error:
        raise AssertionError(says(f"has settings without a default: {error}")) from None
    for name, field in config.model_fields.items():
        assert field.description, says(f"has no description of its setting {name!r}")
    for name, values in IMPOSSIBLE.items():
        for value in values if name in config.model_fields else ():
            assert not _accepts(config, name, value), says(
                f"accepts {name} = {value}; declare the setting as Epochs or LearningRate of "
                "qunlearn.methods"
            )
    for name, searched in config.search.items():
        assert name in config.model_fields, says(f"searches {name!r}, which is no setting")
        assert searched.low < searched.high, says(f"searches {name!r} in an empty range")
        for value in (searched.low, searched.high):
            assert _accepts(config, name, value), says(
                f"searches {name!r} up to {value}, which it does not accept"
            )


def _accepts(config: type[MethodConfig], name: str, value: float) -> bool:
    try:
        config.parse({name: value})
    except UserError:
        return False
    return True


def _check_resuming(trial: _Trial, split: Split, whole: Mapping[str, Tensor]) -> None:
    for steps in (1, 8):  # of 12: within the first epoch, and within the second
        with tempfile.TemporaryDirectory(prefix="qunlearn-") as folder:
            path = Path(folder, "checkpoint")
            try:
                trial.run(split, _Stopping(path, "", steps))
            except _Stopped:
                resumed = trial.run(split, Checkpointer(path, ""))
                other = difference(whole, resumed)
                assert not other, trial.says(
                    f"gives other weights when it is interrupted and resumed: {other}; what its "
                    "objective remembers must be in state(), and come back by restore()"
                )


def _check_samples(trial: _Trial) -> None:
    split = _digits().forget_random(0.1).forget_class(3).forget_random(0.1)
    data, parts = split.data, {"held-out": split.held_out, "test": split.test}
    if not trial.method.holds_earlier:
        parts["earlier forgotten"] = torch.cat(split.earlier)
    for what, rows in parts.items():
        images = data.images.float() / 255
        images[rows] = MARK
        marked = replace(split, data=replace(data, images=images))
        try:
            trial.run(marked)
        except _Trained:
            raise AssertionError(trial.says(f"trains on {what} samples")) from None


class _Trial:
    """A method that is tried."""

    def __init__(self, method: Method, config: MethodConfig | None):
        self.method, self.config = method, config

    def says(self, what: str) -> str:
        return f"Method {self.method.name!r} {what}."

    def run(self, split: Split, checkpointer: Checkpointer | None = None) -> dict[str, Tensor]:
        """The weights that come of forgetting."""
        job = Job(
            _watched(copy.deepcopy(_network())),
            split,
            make_fabric(ComputeConfig()),
            fresh=lambda seed: _watched(_untrained(seed)),
            checkpointer=checkpointer,
        )
        assert self.config is not None
        self.config.check(split)
        self.method.run(job, self.config)
        return copied(job.model)


class _Trained(Exception):
    """A marked sample was trained on."""


def _watched(model: nn.Module) -> nn.Module:
    """The model, which refuses marked samples unless it only predicts."""

    def look(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if (module.training or torch.is_grad_enabled()) and (inputs[0] > MARK / 2).any():
            raise _Trained

    model.register_forward_pre_hook(look)
    return model


class _Stopped(Exception):
    """The interruption."""


class _Stopping(Checkpointer):
    """Saves the state after each step, and then interrupts the run."""

    def __init__(self, path: Path, key: str, steps: int):
        super().__init__(path, key)
        self.left = steps

    def due(self, epoch_ended: bool = False) -> bool:
        return True

    def save(self, *arguments: Any) -> None:
        super().save(*arguments)
        self.left -= 1
        if not self.left:
            raise _Stopped


def _untrained(seed: int) -> nn.Module:
    spec = ModelSpec("cnn", classes=10, channels=1, size=8, width=0.25)
    return quantize(spec.build(seed), QuantSpec())


@cache
def _digits() -> Split:
    return Split.make(load_dataset("digits", subset=200))


@cache
def _network() -> nn.Module:
    return train(_untrained(0), _digits(), epochs=10, batch_size=30, lr=0.1)
