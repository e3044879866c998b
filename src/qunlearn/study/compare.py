"""`qunlearn compare`: every method on one request, beside Retrain, over several seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qunlearn.data import Split
from qunlearn.errors import UserError
from qunlearn.methods import find_method
from qunlearn.methods.config import ForgetConfig
from qunlearn.methods.forget import asked, inherited, recipe_of, request_digest, settings_of
from qunlearn.store.run import Run
from qunlearn.store.study import StudyFolder
from qunlearn.study.cells import Cell, figures_of, run_cells
from qunlearn.study.config import PLACE, CompareConfig, folder_name, variant
from qunlearn.study.table import Entry, table_of
from qunlearn.study.tune import tuned
from qunlearn.training.evaluate import data_config, figures, load_data, split_of


def compare_run(config: CompareConfig, out: Path) -> dict[str, Any]:
    """Make what is missing of a comparison, and keep its table in `out`."""
    names = ["retrain", *config.names]
    given = {name: config.settings_for(name) for name in names}
    digest = check(config, given)
    folder = StudyFolder.open_or_create(out, config.to_dict())
    seeds = range(config.seeds)
    retrains = run_cells(
        [cell(config, out, "retrain", seed, given["retrain"], digest) for seed in seeds],
        config.workers,
        "retraining",
    )
    trials = {}
    if config.tune:
        for name in config.names:
            chosen, count = tuned(config, folder, name, given[name], retrains[0], digest)
            given[name], trials[name] = chosen, count
    cells = [
        cell(config, out, name, seed, given[name], digest)
        for name in config.names
        for seed in seeds
    ]
    runs = run_cells(cells, config.workers, "comparing")
    split = split_of(retrains[0], config.data_dir)
    entries = [
        Entry("retrain", seed, figures_of(run), run.predictions, 0)
        for seed, run in enumerate(retrains)
    ]
    entries += [
        Entry(
            each.method,
            each.seed,
            against(run, retrains[each.seed], split),
            run.predictions,
            trials.get(each.method, 0),
        )
        for each, run in zip(cells, runs, strict=True)
    ]
    table = {
        "request": split.requests[-1].kind,
        "detail": dict(split.requests[-1].detail),
        "parts": {part: len(index) for part, index in split.measured().items()},
        "seeds": config.seeds,
        "select": config.select if config.tune else None,
        "original": retrains[0].metrics["before"],
        **table_of(entries, split),
    }
    folder.write_table(table)
    return table


def cell(
    config: CompareConfig,
    out: Path,
    name: str,
    seed: int,
    settings: Mapping[str, Any],
    digest: str,
) -> Cell:
    """One cell: its settings, and where its run is kept."""
    values = {**config.origin(), "method": variant(name)[0]}
    values["settings"] = {**settings, "seed": seed}
    path = out / PLACE / folder_name(name) / f"seed{seed}"
    return Cell(name, seed, ForgetConfig.parse(values), path, digest)


def check(config: CompareConfig, given: Mapping[str, Mapping[str, Any]]) -> str:
    """Raise whatever is wrong before anything is made; the digest of the samples asked for."""
    origin = Run.open(config.run)
    data = load_data(data_config(origin, **config.moved))
    split = asked(Split.from_json(origin.split, data), config)
    for name, settings in given.items():
        method = find_method(variant(name)[0])
        settings_of(method, {**inherited(recipe_of(origin.config), method), **settings})
    if not given.keys() - {"retrain"}:
        raise UserError("There is nothing to compare with Retrain; name a method with --methods.")
    return request_digest(split)


def against(run: Run, retrain: Run, split: Split) -> dict[str, Any]:
    """A cell's figures with the gaps to the Retrain of its seed."""
    whole = figures_of(run)
    compared = figures(run.predictions, split, retrain.predictions)
    return {**whole, "metrics": {**whole["metrics"], **compared}}
