"""How a network was trained, and which of these settings a method inherits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from torch import nn

from qunlearn.data import Split
from qunlearn.errors import UserError
from qunlearn.methods.base import Method, MethodConfig, SgdStepConfig
from qunlearn.models import ModelSpec
from qunlearn.quant import QuantSpec, quantize
from qunlearn.runs.model_file import Header, model_with, spec_of, tensors_of
from qunlearn.runs.provenance import Recipe, provenance_of
from qunlearn.runs.reference import check_made_by_retrain, check_retrained
from qunlearn.runs.request import ForgetConfig
from qunlearn.runs.train import start_digest
from qunlearn.store.run import Run
from qunlearn.training.config import OptimizerConfig


def recipe_of(run: Run) -> Recipe:
    """How a run's network was trained; whatever it has forgotten since keeps that on record."""
    config, record, digest = run.config, provenance_of(run), run.info.model_sha256
    if record.recipe is not None:  # of an original that was saved from Python, its own network
        return record.recipe.model_copy(update={"network": record.recipe.network or digest})
    names = OptimizerConfig.model_fields.keys() - {"seed"}
    return Recipe(
        training={name: config[name] for name in sorted(names & config.keys())},
        from_scratch="weights" not in config and "start_from" not in config,
        network=digest,
        start=record.start,
    )


def inherited(recipe: Recipe, method: Method, started: bool = False) -> dict[str, object]:
    """The settings that a method takes over from the network's training, as its defaults.

    Most methods take over `method.config.inherits`. Retrain takes over the whole recipe if that
    describes the whole training: not for an adopted network, and for one that was trained from
    another run's network only if Retrain is `started` from a network as well.
    """
    if not issubclass(method.config, SgdStepConfig):
        return {}
    names = set(method.config.inherits)
    if method.name == "retrain" and (recipe.from_scratch or (started and recipe.start)):
        names = set(OptimizerConfig.model_fields)
    return {name: recipe.training[name] for name in sorted(names & recipe.training.keys())}


def retrain_steps(recipe: Recipe, split: Split) -> int | None:
    """How many steps a Retrain of what is retained takes; None if that is not on record."""
    if not recipe.from_scratch or not {"epochs", "batch_size"} <= recipe.training.keys():
        return None
    training = OptimizerConfig.parse(recipe.training)
    return training.epochs * -(-len(split.retain) // training.batch_size)


def within_budget(
    budget: float, recipe: Recipe, split: Split, method: Method, settings: MethodConfig
) -> int:
    """The maximum number of steps by a budget; at most `settings.steps`."""
    if "steps" not in method.config.model_fields:
        raise UserError(
            f"Method {method.name!r} has no number of steps that a budget could limit; leave "
            "--budget out."
        )
    most = _steps_of(budget, recipe, split)
    return min(most, getattr(settings, "steps", None) or most)


def _steps_of(budget: float, recipe: Recipe, split: Split) -> int:
    if budget >= 1:
        return int(budget)
    retraining = retrain_steps(recipe, split)
    if retraining is None:
        raise UserError(
            f"A budget of {budget:g} of a Retrain needs a network whose training is on record, and "
            "this one was adopted or trained from another; give a number of steps."
        )
    return max(1, int(budget * retraining))


def builder(config: ForgetConfig, header: Header) -> Callable[[int], nn.Module]:
    """A function of a seed that gives the network before it is trained, for Retrain."""
    spec = spec_of(header, config.model, str(config.run))
    return partial(_built, spec=spec, quant=header.quant, start=config.start_from)


def _built(seed: int, *, spec: ModelSpec, quant: QuantSpec, start: Path | None) -> nn.Module:
    if start is None:
        return quantize(spec.build(seed), quant)
    run = Run.open(start)
    return model_with(spec, quant, tensors_of(run), run.model_path)


def check_start(config: ForgetConfig, origin: Run, split: Split) -> str | None:
    """The digest of what Retrain is to start from, if from anything.

    Raises unless that is the Retrain, without all that the split has forgotten, of the network
    that the run's own was trained from.
    """
    if config.start_from is None:
        return None
    recipe = recipe_of(origin)
    if config.method != "retrain":
        raise UserError(
            f"--start-from goes with retrain, not with {config.method!r}, which starts from "
            "the network that forgets; leave it out."
        )
    if recipe.from_scratch:
        raise UserError(
            f"The network of {str(config.run)!r} was trained from scratch, and so is its Retrain; "
            "leave --start-from out."
        )
    if not recipe.start:
        raise UserError(
            f"It is not on record what the network of {str(config.run)!r} was trained from; leave "
            "--start-from out."
        )
    start = Run.open(config.start_from)
    check_made_by_retrain(start, "start")
    check_retrained(start, split, "start")
    if recipe_of(start).network != recipe.start:
        raise UserError(
            f"The start {str(start.path)!r} is the Retrain of another network than "
            f"{str(config.run)!r} was trained from; name the Retrain of that one."
        )
    builder(config, Header.read(origin.model_path))(0)  # whatever does not fit is said now
    return start_digest(start.path, config.record.start)
