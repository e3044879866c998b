"""Forgetting: from a run and a request to a run that has forgotten."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from torch import nn

from qunlearn.data import Request, Split, manifest, read_ids
from qunlearn.errors import UserError
from qunlearn.methods.find import find_method
from qunlearn.methods.forget import check_request, forget, settings_of
from qunlearn.runs.data import data_config, located
from qunlearn.runs.evaluate import figures, predictions
from qunlearn.runs.model_file import Header, load, save
from qunlearn.runs.origin import recorded
from qunlearn.runs.outputs import measured_before
from qunlearn.runs.recipe import builder, check_start, inherited, recipe_of
from qunlearn.runs.request import WAYS, ForgetConfig, RequestConfig
from qunlearn.runs.retire import retire_into
from qunlearn.store.run import SPLIT, Run
from qunlearn.training.devices import leave_together, make_fabric

PLACES = ("run", "start_from", "data")
"""The settings that only say where something is; digests say that it is the same."""


def forget_run(config: ForgetConfig, out: Path, *, resume: bool = False) -> Run:
    """Make a run's model forget what is asked, and keep the new model in the folder `out`.

    Samples held out and of the test part that are asked for are retired; if there are no others,
    the new run has the same weights. With `resume`, resume the run that was begun there, if there
    is one: what it was asked is known there.
    """
    Run.check_free(out, resume)
    origin = recorded(out, config.run, config.origin_digest)
    start = config.start_from
    if start is not None and config.start_digest:
        start = recorded(out, start, config.start_digest).path
    config = config.model_copy(update={"run": origin.path, "start_from": start})
    for used in filter(None, (config.run, config.start_from)):
        if out.resolve().is_relative_to(used.resolve()):
            raise UserError(
                f"The output {str(out)!r} is inside the run {str(used)!r}; name a folder beside it."
            )
    chosen = find_method(config.method)
    given = config.method_settings
    recipe = recipe_of(origin)
    settings = settings_of(chosen, inherited(recipe, chosen, config.start_from is not None) | given)
    fabric = make_fabric(config)
    begun = begun_request(config, out) if resume else None
    columns = begun is None and (config.where is not None or config.metadata is not None)
    known = data_config(origin, **config.changed)
    data, then = located(origin, known, config.data_path, columns=columns)
    split = asked(then, config) if begun is None else then.repeat(begun)
    wanted = request_digest(split)
    if config.asked not in ("", wanted):
        raise UserError(
            "The request names other samples than when this configuration was written: the list, "
            "the metadata or the run has changed since; ask by flags instead."
        )
    model = load(origin.path, config.model)
    header = replace(Header.read(origin.model_path), split=split.to_json())
    stated: dict[str, Any] = {
        "origin_digest": origin.info["model_sha256"],
        "start_digest": check_start(config, origin, split) or None,
        "settings": settings.to_dict(),
        "data": data.to_dict(),
        "recipe": recipe,
        "asked": wanted,
    }
    forgets = bool(split.requests[-1].ids)
    if forgets:
        check_request(model, split, settings, config.devices)
    elif "before" in origin.metrics:  # what made the network is what made the one before
        stated |= {name: origin.config[name] for name in ("method", "settings")}
    in_tables = dict.fromkeys(("epochs", "seed", "data_path", "metadata"))
    written = config.to_dict() | in_tables | stated
    with Run.writing(out, written, header.split, resume, places=PLACES) as run:
        if Run.is_complete(out):
            return run
        if not forgets:
            retire_into(run, origin, model, split, header)
            return run
        work = partial(
            _forget_into,
            run=run,
            model=model,
            split=split,
            header=header,
            method=config.method,
            settings=settings.model_dump(),
            fresh=builder(config, header),
            before=measured_before(origin, model, split),
            info={
                "method": chosen.name,
                "revision": chosen.revision,
                "origin": origin.info["model_sha256"],
            },
        )
        fabric.launch(work)
    return run


def begun_request(config: ForgetConfig, out: Path) -> Request | None:
    """The request that a run was begun with, if it is the one that is asked for now."""
    if not config.asked or not (out / SPLIT).is_file():
        return None
    kept = manifest.parse(Run(out).split)
    return kept.requests[-1] if kept.requests else None


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
    if request.column is not None and request.ids is None:
        raise UserError("--column goes with --ids only; leave it out.")
    if request.skip_unusable and request.ids is None:
        raise UserError("--skip-unusable goes with --ids only; leave it out.")
    if request.random is not None:
        return split.forget_random(request.random, request.forget_seed)
    if request.classes is not None:
        return split.forget_class(*request.classes)
    if request.ids is not None:
        names = read_ids(request.ids, request.column)
        return split.forget_ids(names, skip_unusable=request.skip_unusable)
    assert request.where is not None
    return split.forget_where(request.where)


def request_digest(split: Split) -> str:
    """The digest of the samples that the last request names."""
    request = split.requests[-1]
    names = "\n".join(request.ids)
    if request.retired:
        names = "\n".join((names, "", *request.retired))
    return hashlib.sha256(names.encode()).hexdigest()
