"""Forgetting: from a trained model and a request to a model that has forgotten."""

from __future__ import annotations

import copy
import hashlib
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from torch import nn

from qunlearn.data import Loader, Split, read_ids
from qunlearn.errors import Failure, UserError, unknown
from qunlearn.methods.base import Job, Method, MethodConfig, methods
from qunlearn.methods.config import WAYS, ForgetConfig, RequestConfig
from qunlearn.methods.find import find_method
from qunlearn.methods.recipe import builder, check_start, inherited, recipe_of
from qunlearn.store.run import Run
from qunlearn.training.checkpoint import Header, load, save
from qunlearn.training.config import ComputeConfig, OptimizerConfig
from qunlearn.training.devices import leave_together, make_fabric
from qunlearn.training.evaluate import (
    data_config,
    figures,
    load_data,
    measured_before,
    predictions,
)
from qunlearn.training.resume import Keeper, fingerprint
from qunlearn.training.train import check_fits

Row = dict[str, Any]


@dataclass(frozen=True)
class Forgotten:
    """What comes of forgetting.

    Attributes:
        model: The network that has forgotten; the one that was given is unchanged.
        history: A row of numbers for each epoch.
        config: The method's settings, the defaults filled in.
        seconds: How long it took, without the time spent on watching it.
        found: What the method has to say about itself.
    """

    model: nn.Module
    history: list[Row]
    config: MethodConfig
    seconds: float
    found: Mapping[str, Any]


def forget(
    model: nn.Module,
    split: Split,
    method: str = "oeu",
    *,
    fresh: Callable[[int], nn.Module] | None = None,
    on_epoch: Callable[[Row], None] = lambda row: None,
    fabric: Fabric | None = None,
    checkpoint: Path | None = None,
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
        checkpoint: A file to keep the state in now and then; where it is there, go on from it.
        **settings: Those of the method, such as `epochs=5, alpha=0.5`.

    Example:
        >>> import qunlearn as qu
        >>> split = qu.Split.random(qu.load_dataset("digits", subset=200), fraction=0.1)
        >>> model = qu.ModelSpec("resnet18", classes=10, channels=1, size=8, width=0.125).build()
        >>> model = qu.train(qu.quantize(model, qu.QuantSpec()), split, epochs=1)
        >>> result = qu.forget(model, split, method="oeu", epochs=1, batch_size=50)
        >>> [row["epoch"] for row in result.history]
        [1]
    """
    for value, kind, hint in (
        (model, nn.Module, "give a torch module"),
        (split, Split, "make one with Split.random(data) or another way to ask"),
        (method, str, "give a method's name, such as 'oeu'"),
    ):
        if not isinstance(value, kind):
            raise UserError(f"{type(value).__name__} is no {kind.__name__}: {hint}.")
    chosen = find_method(method)
    config = settings_of(chosen, settings)
    _check(model, split, config)
    model = copy.deepcopy(model)
    history: list[Row] = []

    def keep(row: Row) -> None:
        history.append(row)
        on_epoch(row)

    keepers = []
    if checkpoint:
        made = (method, chosen.revision, config, split.forget, split.retain)
        keepers = [Keeper(checkpoint, fingerprint(model, *made))]
    started = time.perf_counter()
    job = Job(
        model,
        split,
        make_fabric(ComputeConfig()) if fabric is None else fabric,
        fresh=fresh,
        on_epoch=keep,
        title=f"forgetting by {method}",
        keepers=keepers.copy(),
    )
    try:
        chosen.run(job, config)
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
    seconds = time.perf_counter() - started - sum(job.watching)
    seconds += sum(keeper.seconds_before for keeper in keepers)
    found = {**job.found, **split.duplicates_told(), **split.elsewhere_told()}
    config = config.model_copy(update=job.found.get("chosen", {}))
    return Forgotten(model.eval(), history, config, seconds, found)


def forget_run(config: ForgetConfig, out: Path, *, resume: bool = False) -> Run:
    """Make a run's model forget what is asked, and keep the new model in the folder `out`.

    With `resume`, go on with the run that was begun there, if there is one.
    """
    Run.check_free(out, resume)
    for used in filter(None, (config.run, config.start_from)):
        if out.resolve().is_relative_to(used.resolve()):
            raise UserError(
                f"The output {str(out)!r} is inside the run {str(used)!r}; name a folder beside it."
            )
    chosen = find_method(config.method_name)
    origin = Run.open(config.run)
    given = config.method_settings
    recipe = recipe_of(origin)
    settings = settings_of(chosen, inherited(recipe, chosen, config.start_from is not None) | given)
    fabric = make_fabric(config)
    data = data_config(origin, **config.data | config.moved)
    then = Split.from_json(origin.split, load_data(data))
    split = asked(then, config)
    wanted = request_digest(split)
    if config.asked not in ("", wanted):
        raise UserError(
            "The request names other samples than when this configuration was written: the list, "
            "the metadata or the run has changed since; ask by flags instead."
        )
    model = load(config.run, config.model)
    _check(model, split, settings, config.devices)
    header = replace(Header.read(origin.model_path), split=split.to_json())
    stated = {
        "start_digest": check_start(config, origin, split) or None,
        "settings": settings.to_dict(),
        "data": data.to_dict(),
        "recipe": recipe,
        "asked": wanted,
    }
    in_tables = dict.fromkeys(("epochs", "seed", "data_dir", "metadata"))
    with Run.writing(out, config.to_dict() | in_tables | stated, header.split, resume) as run:
        if not Run.is_complete(out):
            work = partial(
                _forget_into,
                run=run,
                model=model,
                split=split,
                header=header,
                method=config.method_name,
                settings=settings.model_dump(),
                fresh=builder(config, header),
                before=measured_before(origin, model, then, split),
                info={
                    "method": chosen.name,
                    "revision": chosen.revision,
                    "origin": origin.info["model_sha256"],
                },
            )
            fabric.launch(work)
    return run


def _forget_into(
    fabric: Fabric,
    *,
    run: Run,
    model: nn.Module,
    split: Split,
    header: Header,
    method: str,
    settings: Mapping[str, Any],
    fresh: Callable[[int], nn.Module],
    before: Mapping[str, Any],
    info: Mapping[str, Any],
) -> None:
    """What each process does: forget; the first keeps the result."""
    first = fabric.is_global_zero
    result = forget(
        model,
        split,
        method,
        fresh=fresh,
        on_epoch=run.append_history if first else lambda row: None,
        fabric=fabric,
        checkpoint=run.checkpoint_path,
        **settings,
    )
    if first:
        started = time.perf_counter()
        save(run, result.model, header)
        logits = predictions(result.model, split)
        run.write_predictions(logits)
        run.write_metrics(figures(logits, split) | {"before": before} | dict(result.found))
        seconds = {"forgetting": result.seconds, "evaluation": time.perf_counter() - started}
        run.finish({"seconds": {k: round(v, 3) for k, v in seconds.items()}, **info})
    leave_together(fabric)


def asked(split: Split, request: RequestConfig) -> Split:
    """The split with the request added."""
    given = [flag for name, flag in WAYS.items() if getattr(request, name) is not None]
    if len(given) != 1:
        said = "Say what to forget" if not given else f"{' and '.join(given)} are both given"
        raise UserError(f"{said}; give exactly one of {', '.join(WAYS.values())}.")
    if request.forget_seed is not None and request.random is None:
        raise UserError("--forget-seed goes with --random only; leave it out.")
    if request.random is not None:
        return split.forget_random(request.random, request.forget_seed)
    if request.classes is not None:
        return split.forget_class(*request.classes)
    if request.ids is not None:
        return split.forget_ids(read_ids(request.ids))
    assert request.where is not None
    return split.forget_where(request.where)


def settings_of(method: Method, values: Mapping[str, Any]) -> MethodConfig:
    """The settings, checked against the method's own."""
    for name in values:
        if name in method.config.model_fields:
            continue
        if owners := [other for other in methods if name in methods[other].config.model_fields]:
            raise UserError(
                f"Unknown setting of {method.name}, {name!r}: other methods have it, such as "
                f"{owners[-1]}; leave it out."
            )
        raise unknown(f"setting of {method.name},", name, method.config.model_fields)
    return method.config.parse(values)


def request_digest(split: Split) -> str:
    """The digest of the samples that the last request names."""
    return hashlib.sha256("\n".join(split.requests[-1].ids).encode()).hexdigest()


def _check(model: nn.Module, split: Split, config: MethodConfig, processes: int = 1) -> None:
    """Raise whatever is wrong before anything is written."""
    if not len(split.forget):
        raise UserError(
            "The samples to forget are erased from the data already, and nothing is left to "
            "forget them by; restore them."
        )
    if split.data.num_classes < 2:
        raise UserError("With a single class there is nothing to forget; use two or more.")
    config.check(split)
    optimizer = config if isinstance(config, OptimizerConfig) else OptimizerConfig()
    check_fits(model, split.data, split.retain, optimizer, processes)
    Loader(split.data, split.forget, optimizer.batch_size, world=processes)
