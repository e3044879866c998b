"""Forgetting: from a trained model and a request to a model that has forgotten."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from torch import nn

from qunlearn.data import Split, read_ids
from qunlearn.errors import UserError
from qunlearn.methods.base import Job, Method, MethodConfig, SgdConfig
from qunlearn.methods.config import ForgetConfig, RequestConfig
from qunlearn.methods.find import find_method
from qunlearn.quant import quantize
from qunlearn.store.run import Run
from qunlearn.training.checkpoint import Header, load, save, spec_of
from qunlearn.training.config import ComputeConfig, OptimizerConfig
from qunlearn.training.devices import leave_together, make_fabric
from qunlearn.training.evaluate import data_config, evaluate, load_data
from qunlearn.training.train import check_fits

Row = dict[str, Any]


@dataclass(frozen=True)
class Forgotten:
    """What comes of forgetting.

    Attributes:
        model: The network that has forgotten; the one that was given is unchanged.
        history: A row of numbers for each epoch.
        config: The method's settings, the defaults filled in.
        seconds: How long it took.
    """

    model: nn.Module
    history: list[Row]
    config: MethodConfig
    seconds: float


def forget(
    model: nn.Module,
    split: Split,
    method: str = "oeu",
    *,
    fresh: Callable[[int], nn.Module] | None = None,
    on_epoch: Callable[[Row], None] = lambda row: None,
    fabric: Fabric | None = None,
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
    chosen = find_method(method)
    config = chosen.config.parse(settings)
    _check(model, split, config)
    model = copy.deepcopy(model)
    history: list[Row] = []

    def keep(row: Row) -> None:
        history.append(row)
        on_epoch(row)

    started = time.perf_counter()
    job = Job(
        model,
        split,
        make_fabric(ComputeConfig()) if fabric is None else fabric,
        fresh=fresh,
        on_epoch=keep,
        title=f"forgetting by {method}",
    )
    chosen.run(job, config)
    return Forgotten(model.eval(), history, config, time.perf_counter() - started)


def forget_run(config: ForgetConfig, out: Path) -> Run:
    """Make a run's model forget what is asked, and keep the new model in the folder `out`."""
    Run.check_free(out)
    chosen = find_method(config.method)
    origin = Run.open(config.run)
    given = config.method_settings
    settings = chosen.config.parse(inherited(origin.config, chosen) | given)
    fabric = make_fabric(config)
    moved = {"data_dir": config.data_dir, "metadata": config.metadata}
    data = data_config(origin, **config.data, **{k: v for k, v in moved.items() if v is not None})
    split = asked(Split.from_json(origin.split, load_data(data)), config)
    model = load(config.run, config.model)
    _check(model, split, settings)
    header = replace(Header.read(origin.model_path), split=split.to_json())
    run = Run.create(out)
    stated = {"settings": settings.to_dict(), "data": data.to_dict()}
    in_tables = dict.fromkeys(("epochs", "seed", "data_dir", "metadata"))
    run.write_config(config.to_dict() | in_tables | stated)
    run.write_split(header.split)
    work = partial(
        _forget_into,
        run=run,
        model=model,
        split=split,
        header=header,
        method=config.method,
        settings=settings.model_dump(),
        factory=config.model,
        info={"method": chosen.name, "origin": origin.info["model_sha256"]},
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
    factory: str | None,
    info: Mapping[str, Any],
) -> None:
    """What each process does: forget; the first keeps the result."""
    first = fabric.is_global_zero
    spec = spec_of(header, factory, str(run.path))
    result = forget(
        model,
        split,
        method,
        fresh=lambda seed: quantize(spec.build(seed), header.quant),
        on_epoch=run.append_history if first else lambda row: None,
        fabric=fabric,
        **settings,
    )
    if first:
        started = time.perf_counter()
        save(run, result.model, header)
        run.write_metrics(evaluate(result.model, split))
        seconds = {"forgetting": result.seconds, "evaluation": time.perf_counter() - started}
        run.finish({"seconds": {k: round(v, 3) for k, v in seconds.items()}, **info})
    leave_together(fabric)


def asked(split: Split, request: RequestConfig) -> Split:
    """The split with the request added."""
    ways = {
        "--random": request.random,
        "--class": request.classes,
        "--ids": request.ids,
        "--where": request.where,
    }
    given = [flag for flag, value in ways.items() if value is not None]
    if len(given) != 1:
        said = "nothing" if not given else " and ".join(given)
        raise UserError(
            f"What to forget is given by {said}; give exactly one of --random, --class, --ids and "
            "--where."
        )
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


def inherited(origin: Mapping[str, Any], method: Method) -> dict[str, Any]:
    """The settings that follow the run that forgets, unless others are given.

    Batches, momentum, decay and augmentation stay as the network is used to. Retrain follows the
    whole recipe, where the run has one: not if it was adopted or started from another run.
    """
    if not issubclass(method.config, SgdConfig):
        return {}
    settings = origin.get("settings", origin)  # a run that has forgotten keeps them in a table
    names = {"batch_size", "momentum", "weight_decay", "augment"}
    if method.name == "retrain" and trained_from_scratch(origin):
        names |= set(OptimizerConfig.model_fields) - {"seed"}
    return {name: settings[name] for name in sorted(names & settings.keys())}


def trained_from_scratch(origin: Mapping[str, Any]) -> bool:
    """Whether a run's settings are those of a training from nothing."""
    if "method" in origin:
        return bool(origin["method"] == "retrain")
    return "weights" not in origin and "start_from" not in origin


def _check(model: nn.Module, split: Split, config: MethodConfig) -> None:
    """Raise whatever is wrong before anything is written."""
    optimizer = config if isinstance(config, OptimizerConfig) else OptimizerConfig()
    check_fits(model, split.data, split.retain, optimizer)
    if not len(split.forget):
        raise UserError(
            "The samples to forget are erased from the data already, and nothing is left to "
            "forget them by; restore them, or retrain."
        )
    if split.data.num_classes < 2:
        raise UserError("With a single class there is nothing to forget; use two or more.")
