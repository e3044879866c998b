"""Forgetting: from a run and a request to a run that has forgotten."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from lightning_fabric import Fabric

from qunlearn.methods.forget import run_method
from qunlearn.metrics import Scores
from qunlearn.runs.data_config import DataConfig
from qunlearn.runs.evaluate import predictions, scores_of
from qunlearn.runs.metrics import forgotten_metrics
from qunlearn.runs.model_file import save
from qunlearn.runs.outputs import measured_before
from qunlearn.runs.plan import Plan, plan_forgetting
from qunlearn.runs.provenance import TABLE
from qunlearn.runs.recipe import builder
from qunlearn.runs.request import ForgetConfig
from qunlearn.runs.retire import retire_into
from qunlearn.runs.train import save_key
from qunlearn.store.info import RunInfo
from qunlearn.store.run import Run
from qunlearn.training.devices import leave_together
from qunlearn.training.group import place

PLACES = ("run", "start_from", "provenance.data")
"""The settings that only say where something is; digests say that it is the same."""


def forget_run(
    config: ForgetConfig,
    out: Path,
    *,
    resume: bool = False,
    recorded: Mapping[str, Path] | None = None,
    data: DataConfig | None = None,
) -> Run:
    """Make a run's model forget the requested samples; save the new model in the folder `out`.

    Requested samples of the held-out and test parts are retired. If there are no others, the new
    run has the same weights. With `resume`, a run that was begun in `out` is resumed with the
    request on record there.

    A node of a cluster may have files at other places than the machine that asks: `recorded` are
    the paths, and `data` the place of the data, that the record names instead.
    """
    plan = plan_forgetting(config, out, resume=resume)
    record = {**plan.record, **{name: str(path) for name, path in (recorded or {}).items()}}
    if data is not None:
        record[TABLE] = {**record[TABLE], "data": data.to_dict()}  # type: ignore[dict-item]
    return execute(replace(plan, record=record), out, resume=resume)


def execute(plan: Plan, out: Path, *, resume: bool = False) -> Run:
    """Carry out a plan."""
    place(plan.split.data)
    with Run.writing(out, plan.record, plan.header.split, resume, places=PLACES) as run:
        if Run.is_complete(out):
            return run
        save_key(plan.split, out)
        if not plan.forgets:
            retire_into(run, plan.origin, plan.model, plan.split, plan.header)
            return run
        before = measured_before(plan.origin, plan.model, plan.split)
        plan.fabric.launch(partial(_forget_into, run=run, plan=plan, before=before))
    return run


def _forget_into(fabric: Fabric, *, run: Run, plan: Plan, before: Scores) -> None:
    """What each process does: forget; the first saves the result."""
    first = fabric.is_global_zero
    result = run_method(
        plan.model,
        plan.split,
        plan.method,
        plan.settings,
        fresh=builder(plan.config, plan.header),
        on_epoch=run.append_history if first else lambda row: None,
        fabric=fabric,
        checkpoint=run.checkpoint_path,
        probe=not plan.config.skip_probe,
    )
    if first:
        started = time.perf_counter()
        save(run, result.model, plan.header)
        logits = predictions(result.model, plan.split)
        run.write_predictions(logits)
        scores = scores_of(logits, plan.split)
        metrics = forgotten_metrics(scores, before, result.findings, plan.split)
        run.write_metrics(metrics.to_json())
        seconds = {"forgetting": result.seconds, "evaluation": time.perf_counter() - started}
        if result.probe_seconds:
            seconds["probe"] = result.probe_seconds
        run.finish(
            RunInfo(
                {name: round(value, 3) for name, value in seconds.items()},
                method=plan.method.name,
                revision=plan.method.revision,
                origin=plan.origin.info.model_sha256,
            )
        )
    leave_together(fabric)
