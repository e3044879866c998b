"""Forgetting: from a trained model and a split to a model that has forgotten."""

from __future__ import annotations

import copy
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from torch import nn

from qunlearn.data import Loader, Split
from qunlearn.errors import Failure, UserError, unknown
from qunlearn.methods.base import Findings, Job, Method, MethodConfig, methods
from qunlearn.methods.find import find_method
from qunlearn.methods.relearn import relearn
from qunlearn.store.history import Epoch
from qunlearn.training.checkpoint import Checkpointer, fingerprint
from qunlearn.training.config import ComputeConfig, StepConfig
from qunlearn.training.devices import make_fabric
from qunlearn.training.made_on import made_on
from qunlearn.training.train import check_fits


@dataclass(frozen=True)
class Forgotten:
    """What comes of forgetting.

    Attributes:
        model: The network that has forgotten; the one that was given is unchanged.
        history: A row of numbers for each epoch.
        config: The method's settings, the defaults filled in.
        seconds: How long it took, without the time spent on watching it.
        findings: What the method reports about its own run.
        probe_seconds: How long the relearning probe took; 0 without one.
    """

    model: nn.Module
    history: list[Epoch]
    config: MethodConfig
    seconds: float
    findings: Findings
    probe_seconds: float


def forget(
    model: nn.Module,
    split: Split,
    method: str = "calibrated",
    *,
    fresh: Callable[[int], nn.Module] | None = None,
    on_epoch: Callable[[Epoch], None] = lambda row: None,
    fabric: Fabric | None = None,
    checkpoint: Path | None = None,
    probe: bool = True,
    **settings: Any,
) -> Forgotten:
    """Make a copy of a model forget what the split's last request names.

    Args:
        model: A trained classifier, quantized or not; it is not changed.
        split: Says what to forget and what to retain.
        method: The method's name; see `qunlearn methods`.
        fresh: For "retrain": a function of a seed that returns the untrained network.
        on_epoch: Gets a row of numbers after each epoch.
        fabric: Devices and precision; one processor or GPU in 32 bits by default.
        checkpoint: A file for the state of training; if it exists, the run is resumed from it.
        probe: Whether to measure, on a copy, what fine-tuning on retained samples brings back.
        **settings: Those of the method, such as `epochs=5, alpha=0.5`.

    Example:
        >>> import qunlearn as qu
        >>> split = qu.Split.random(qu.load_dataset("digits", subset=200), fraction=0.1)
        >>> model = qu.ModelSpec("resnet18", classes=10, channels=1, size=8, width=0.125).build()
        >>> model = qu.train(qu.quantize(model, qu.QuantSpec()), split, epochs=1)
        >>> result = qu.forget(model, split, method="calibrated", epochs=1, batch_size=50)
        >>> [row.epoch for row in result.history]
        [1]
    """
    for value, kind, hint in (
        (model, nn.Module, "give a torch module"),
        (split, Split, "make one with Split.random(data) or another way to ask"),
        (method, str, "give a method's name, such as 'calibrated'"),
    ):
        if not isinstance(value, kind):
            raise UserError(f"{type(value).__name__} is no {kind.__name__}: {hint}.")
    chosen = find_method(method)
    config = settings_of(chosen, settings)
    check_request(model, split, config)
    return run_method(
        model,
        split,
        chosen,
        config,
        fresh=fresh,
        on_epoch=on_epoch,
        fabric=fabric,
        checkpoint=checkpoint,
        probe=probe,
    )


def run_method(
    model: nn.Module,
    split: Split,
    chosen: Method,
    config: MethodConfig,
    *,
    fresh: Callable[[int], nn.Module] | None = None,
    on_epoch: Callable[[Epoch], None] = lambda row: None,
    fabric: Fabric | None = None,
    checkpoint: Path | None = None,
    probe: bool = True,
) -> Forgotten:
    """Make a copy of a model forget, by a method and settings that were resolved and checked."""
    model = copy.deepcopy(model)
    history: list[Epoch] = []

    def record(row: Epoch) -> None:
        history.append(row)
        on_epoch(row)

    made = (chosen.name, chosen.revision, config, split.forget, split.retain)
    saved = Checkpointer(checkpoint, fingerprint(model, *made)) if checkpoint else None
    job = Job(
        model,
        split,
        make_fabric(ComputeConfig()) if fabric is None else fabric,
        fresh=fresh,
        on_epoch=record,
        title=f"forgetting by {chosen.name}",
        checkpointer=saved,
    )
    try:
        findings = chosen.run(job, config) or Findings()
    except (UserError, Failure):
        raise
    except Exception as error:
        if chosen.run.__module__.startswith("qunlearn."):
            raise
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise Failure(
            f"The method {chosen.name!r} failed: {type(error).__name__}: {error} (at the end in "
            f"{Path(at.filename).name}, line {at.lineno}); no model is kept."
        ) from error
    seconds, begun = job.clock.seconds, time.perf_counter()
    config = config.model_copy(update=dict(findings.chosen))
    made_on[model] = split
    if probe and findings.relearning is None:
        aimed = findings.calibration
        target = aimed.target if aimed is not None else None
        relearning = relearn(model, split, job.fabric, target=target, seed=config.seed)
        findings = replace(findings, relearning=relearning)
    took = time.perf_counter() - begun if probe else 0.0
    return Forgotten(model.eval(), history, config, seconds, findings, took)


def settings_of(method: Method, values: Mapping[str, object]) -> MethodConfig:
    """The settings, checked against the method's own."""
    for name in values:
        if name in method.config.model_fields:
            continue
        if any(name in methods[other].config.model_fields for other in methods):
            *some, last = method.config.model_fields
            raise UserError(
                f"Method {method.name!r} has no setting {name!r}. Its settings are "
                f"{', '.join(some)} and {last}."
            )
        raise unknown(f"setting of {method.name},", name, method.config.model_fields)
    return method.config.parse(values)


def check_request(model: nn.Module, split: Split, config: MethodConfig, processes: int = 1) -> None:
    """Raise whatever is wrong before anything is written."""
    if not len(split.forget):
        raise UserError(
            "The samples to forget are erased from the data already, and nothing is left to "
            "forget them by; restore them."
        )
    if split.data.num_classes < 2:
        raise UserError("With a single class there is nothing to forget; use two or more.")
    config.check(split)
    optimizer = config if isinstance(config, StepConfig) else StepConfig()
    check_fits(model, split.data, split.retain, optimizer, processes)
    Loader(split.data, split.forget, optimizer.batch_size, world=processes)
