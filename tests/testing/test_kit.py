"""The conformance kit finds what is wrong: each plug-in here breaks one promise."""

from __future__ import annotations

import dataclasses
from itertools import count
from typing import Any

import pytest
import torch
from pydantic import Field
from torch import nn

from qunlearn.data import load_dataset, sources
from qunlearn.methods import Epochs, LearningRate, MethodConfig, Range, SgdConfig, method
from qunlearn.methods.base import methods
from qunlearn.models import ImageShape, models
from qunlearn.quant import Family, families
from qunlearn.quant.lsq import LsqActivation, LsqWeight
from qunlearn.testing import check_method, check_model, check_quantizer, check_source
from qunlearn.training.objective import CrossEntropy

registries = (methods, families, models, sources)


@pytest.fixture(autouse=True)
def restored():
    """What a test registers is gone after it."""
    before = [dict(registry._entries) for registry in registries]
    yield
    for registry, entries in zip(registries, before, strict=True):
        registry._entries.clear()
        registry._entries.update(entries)


class Config(SgdConfig):
    epochs: Epochs = Field(2, description="Passes.")
    lr: LearningRate = Field(0.01, description="Rate.")


def tried(run, config=Config, source="us") -> None:
    method("mine", config=config, source=source)(run)
    check_method("mine")


def tune(job, config) -> None:
    """Descend on the retained samples."""
    job.fine_tune(config)


def test_a_sound_method_passes():
    tried(tune)


def trains_on(part):
    def run(job, config) -> None:
        rows = {"earlier": lambda s: torch.cat(s.earlier) if s.earlier else s.retain}
        index = rows.get(part, lambda s: getattr(s, part))(job.split)
        loader = job.loader(torch.cat([job.split.retain, index]), config)
        job.optimize(config, lambda model: CrossEntropy(job.fabric, model, loader))

    return run


def only_averages(job, config) -> None:
    """Even without a gradient, BatchNorm remembers."""
    tune(job, config)
    with torch.no_grad():
        job.model.train()
        job.model(job.split.data.normalise(job.split.data.images[job.split.held_out]))


def draws(job, config) -> None:
    torch.rand(1)
    tune(job, config)


runs = count()


def differs(job, config) -> None:
    tune(job, config)
    next(job.model.parameters()).data.add_(1e-6 * next(runs))


def breaks_on_one(job, config) -> None:
    tune(job, config)
    if len(job.split.forget) == 1:
        next(job.model.parameters()).data.fill_(torch.nan)


class Counting(CrossEntropy):
    """Remembers how many steps there were, and keeps that to itself."""

    seen = 0

    def gradients(self, epoch, step):
        found = super().gradients(epoch, step)
        self.seen += 1
        for parameter in self.model.parameters():
            parameter.grad.mul_(1 / self.seen)
        return found


def forgets_its_state(job, config) -> None:
    loader = job.loader(job.split.retain, config)
    job.optimize(config, lambda model: Counting(job.fabric, model, loader))


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (lambda job, config: None, "leaves the network as it was"),
        (trains_on("held_out"), "trains on held-out samples"),
        (trains_on("test"), "trains on test samples"),
        (trains_on("earlier"), "trains on earlier forgotten samples"),
        (only_averages, "trains on held-out samples"),
        (draws, "changes torch's global random state"),
        (differs, "gives other weights in a second run with the same seed"),
        (breaks_on_one, "non-finite when a single sample is to be forgotten"),
        (forgets_its_state, r"interrupted and resumed.*must be in state\(\)"),
    ],
)
def test_a_method_that_breaks_a_promise_is_found(run, says):
    with pytest.raises(AssertionError, match=rf"Method 'mine' .*{says}"):
        tried(run)


class Rash(Config):
    lr: float = Field(0.01, gt=0, description="Rate.")


class Endless(Config):
    epochs: int = Field(2, ge=1, description="Passes.")


class Wordless(Config):
    strength: float = 1.0


class Demanding(MethodConfig):
    strength: float = Field(description="How much.")


class Searching(Config):
    search = {"lr": Range(1e-3, 1e39)}


class Elsewhere(Config):
    search = {"strength": Range(1e-3, 1)}


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (Rash, r"accepts lr = 1e\+39; declare the setting as Epochs or LearningRate"),
        (Endless, "accepts epochs = 1000001"),
        (Wordless, "no description of its setting 'strength'"),
        (Demanding, "without a default: The setting 'strength' is missing"),
        (Searching, r"searches 'lr' up to 1e\+39, which it does not accept"),
        (Elsewhere, "searches 'strength', which is no setting"),
    ],
)
def test_settings_that_break_a_promise_are_found(config, says):
    with pytest.raises(AssertionError, match=rf"Method 'mine' .*{says}"):
        tried(tune, config)


def test_a_method_says_where_it_comes_from():
    with pytest.raises(AssertionError, match="has no source"):
        tried(tune, source="")


# Quantizers -------------------------------------------------------------------------------------


class OffGrid(LsqActivation):
    def quantize(self, x, whole=None):
        return super().quantize(x, whole) + self.scale / 3


class Restarting(LsqActivation):
    def forward(self, x, whole=None):
        self._ready = False
        return super().forward(x, whole)


class Overwritten(LsqActivation):
    """Starts again after loading, as one would whose buffer is never looked at."""

    def _load_from_state_dict(self, *args, **kwargs):
        super()._load_from_state_dict(*args, **kwargs)
        self._ready = False


class Sizeless(LsqActivation):
    def sizes(self):
        return {}


class Widening(LsqActivation):
    def quantize(self, x, whole=None):
        return super().quantize(x.float(), whole)


class Collapsing(LsqActivation):
    """Nothing keeps its scale from zero and below."""

    def quantize(self, x, whole=None):
        codes = (x / self.scale).round() + self.zero_point
        return (codes.clamp(self.low, self.high) - self.zero_point) * self.scale


class Eager(LsqActivation):
    def forward(self, x, whole=None):
        if not x.numel():
            self.initialise(torch.ones(1, 4))
        return super().forward(x, whole)


class Decayed(LsqActivation):
    decayed = ("alpha",)


class Unstretched(LsqWeight):
    def stretch(self, weight, factor):
        return weight * factor


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (OffGrid, "steps off its grid"),
        (Restarting, "starts again from a second tensor"),
        (Overwritten, "starts over once its state is loaded"),
        (Sizeless, r"has the parameters \['scale'\], and sizes of \[\]"),
        (Widening, "turns torch.float16 into torch.float32"),
        (Collapsing, "parameters moved by .* gives"),
        (Eager, "starts from an empty batch"),
        (Decayed, r"weight decay on \['alpha'\]"),
    ],
)
def test_a_quantizer_that_breaks_a_promise_is_found(inputs, says):
    with pytest.raises(AssertionError, match=rf"The quantizer of inputs, .*{says}"):
        check_quantizer(Family(LsqWeight, inputs))


def test_a_weight_that_cannot_be_stretched_is_found():
    with pytest.raises(AssertionError, match="weights, normal, gives other codes once"):
        check_quantizer(Family(Unstretched, LsqActivation))


# Models -----------------------------------------------------------------------------------------


def straight(shape: ImageShape, classes: int, width: float) -> nn.Module:
    wide = round(64 * width)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(shape.channels * shape.size**2, wide),
        nn.ReLU(),
        nn.Linear(wide, classes),
    )


def fixed_width(shape: ImageShape, classes: int, width: float) -> nn.Module:
    return straight(shape, classes, 1.0)


def fixed_classes(shape: ImageShape, classes: int, width: float) -> nn.Module:
    return straight(shape, 10, width)


def constant(shape: ImageShape, classes: int, width: float) -> nn.Module:
    model = straight(shape, classes, width)
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.1)
    return model


class Idle(nn.Sequential):
    """Has a layer that no image goes through."""

    def __init__(self, *layers: nn.Module):
        super().__init__(*layers)
        self.spare = nn.Parameter(torch.zeros(1))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (fixed_width, "is no larger with a larger width"),
        (fixed_classes, r"not with 2 logits each"),
        (constant, "ignores its seed"),
        (lambda *given: Idle(*straight(*given)), "gives spare no finite gradient"),
    ],
)
def test_a_model_that_breaks_a_promise_is_found(build, says):
    models.register("straight")(straight)
    check_model("straight")
    models.register("mine")(build)
    with pytest.raises(AssertionError, match=rf"Model 'mine' .*{says}"):
        check_model("mine")


# Sources ----------------------------------------------------------------------------------------


def changed(**changes: Any):
    """A source of a hundred digits, with something changed in each load."""
    loads = count()

    def load(options):
        data = load_dataset("digits", subset=100)
        number = next(loads)
        return dataclasses.replace(
            data, **{name: change(data, number, options) for name, change in changes.items()}
        )

    return load


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (changed(ids=lambda d, k, o: tuple(f"{k}-{i}" for i in d.ids)), "has other ids"),
        (changed(images=lambda d, k, o: d.images + k), "twice has other images or labels"),
        (changed(labels=lambda d, k, o: d.labels.int()), "labels of torch.int32, not int64"),
        (changed(is_test=lambda d, k, o: d.is_test | True), "has no training sample"),
        (
            changed(augmentation=lambda d, k, o: dataclasses.replace(d.augmentation, crop=8)),
            "advises to crop 8 pixels of images that have 8",
        ),
        (
            changed(images=lambda d, k, o: d.images + int(o.memory_budget == 1)),
            "beyond the memory budget has other images",
        ),
    ],
)
def test_a_source_that_breaks_a_promise_is_found(source, says):
    sources.register("sound")(changed())
    check_source("sound")
    sources.register("mine")(source)
    with pytest.raises(AssertionError, match=rf"Source 'mine' .*{says}"):
        check_source("mine")
