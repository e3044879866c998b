"""`qunlearn compare`: every method on one request, beside Retrain, over several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from qunlearn.data import Split
from qunlearn.errors import Failure, UserError
from qunlearn.methods import find_method
from qunlearn.methods.forget import settings_of
from qunlearn.runs.data import data_config, located, split_of
from qunlearn.runs.evaluate import scores_of
from qunlearn.runs.nearby import nearby
from qunlearn.runs.origin import recorded
from qunlearn.runs.outputs import outputs_of
from qunlearn.runs.plan import add_request, request_digest
from qunlearn.runs.provenance import TABLE
from qunlearn.runs.recipe import check_start, inherited, recipe_of
from qunlearn.runs.reference import check_test
from qunlearn.runs.request import ForgetConfig
from qunlearn.store.place import named
from qunlearn.store.run import Run
from qunlearn.store.study import StudyFolder
from qunlearn.study.cells import Cell, Cells, result_of, run_jobs, start_of
from qunlearn.study.config import CompareConfig, Settings, variant
from qunlearn.study.executors.base import Executor
from qunlearn.study.executors.open import opened_executor
from qunlearn.study.ranking import ranking
from qunlearn.study.rows import noise_floor, rows_of
from qunlearn.study.source import Source
from qunlearn.study.table import CellResult, Table
from qunlearn.study.tune import Search, need_optuna, run_searches


def compare_run(
    config: CompareConfig, out: Path, home: Path | None = None, executor: Executor | None = None
) -> Table:
    """Make what is missing of a comparison, and keep its table in `out`.

    Cells are kept in `home`, which comparisons of the same request may share; in `out` by default.
    The `executor` makes them; by default the one that the settings name.
    """
    origin = recorded(out, config.run, config.record.origin)
    config = config.model_copy(update=found_again(config, out) | {"run": origin.path})
    source, by_method = planned(config)
    cells = Cells(config, home or out, check(config, by_method))
    record = config.to_dict() | {TABLE: {"origin": origin.info.model_sha256}}
    with named(cells.home, out), ExitStack() as stack:
        references = retrain_cells(cells, by_method)
        if executor is None:
            executor = stack.enter_context(opened_executor(config, cells.home))
        if config.join:
            StudyFolder.joined(out, record)
            return tabulated(config, cells, references, by_method, source, executor)
        with StudyFolder.writing(out, record) as folder:
            table = tabulated(config, cells, references, by_method, source, executor)
            folder.write_table(table.to_json())
    return table


def found_again(config: CompareConfig, out: Path) -> dict[str, Path]:
    """Where other comparisons are now that this one names; what they hold is checked when used."""
    named = {name: getattr(config, name) for name in ("retrains_from", "settings_from")}
    return {n: next(nearby(out, path), path) for n, path in named.items() if path is not None}


def retrain_all(config: CompareConfig, home: Path, executor: Executor) -> None:
    """Make the Retrains of a comparison, and nothing else of it."""
    _, by_method = planned(config)
    with named(home):
        references = retrain_cells(Cells(config, home, check(config, by_method)), by_method)
        list(map(_retrain, run_jobs(references, executor, "retraining")))


def retrain_cells(cells: Cells, by_method: Mapping[str, Settings]) -> list[Cell]:
    """The Retrains that a comparison measures against."""
    seeds = range(cells.config.seeds)
    references = [cells.cell("retrain", by_method["retrain"], seed) for seed in seeds]
    for cell in references:
        cell.check()
    return references


def tabulated(
    config: CompareConfig,
    cells: Cells,
    references: Sequence[Cell],
    by_method: dict[str, Settings],
    source: Source | None,
    executor: Executor,
) -> Table:
    """Make what is missing, and the table of it."""
    retrains = list(map(_retrain, run_jobs(references, executor, "retraining")))
    trials = {name: source.trials[source.row(name)] for name in config.names} if source else {}
    failed: dict[str, str] = {}
    split = split_of(retrains[0], config.data_path)
    if config.tune:
        searches = [
            Search(cells, retrains[0], split.whole_classes, name, by_method[name])
            for name in config.names
        ]
        for name, best in run_searches(searches, executor).items():
            if isinstance(best, Failure):
                failed[name] = str(best)
            else:
                by_method[name], trials[name] = best
    names = [name for name in config.names if name not in failed]
    asked = [
        cells.cell(name, by_method[name], seed) for name in names for seed in range(config.seeds)
    ]
    outcomes = list(zip(asked, run_jobs(asked, executor, "comparing"), strict=True))
    for cell, run in outcomes:
        if isinstance(run, Failure):
            failed.setdefault(cell.method, str(run))
    if len(failed) == len(config.names):
        name, why = next(iter(failed.items()))
        raise Failure(f"Every method failed, and only the Retrains are kept; {name}: {why}")
    runs: dict[str, list[Run]] = {"retrain": retrains}
    for cell, run in outcomes:
        if isinstance(run, Run) and cell.method not in failed:
            runs.setdefault(cell.method, []).append(run)
    return replace(
        table_of(runs, trials, split),
        failed=failed,
        select=source.select if source else config.select if config.tune else None,
        settings_from=str(source.path) if source else None,
    )


def table_of(runs: Mapping[str, Sequence[Run]], trials: Mapping[str, int], split: Split) -> Table:
    """The table of finished cells: each method's runs, seed by seed, Retrain's first."""
    retrains = runs["retrain"]
    results = {"retrain": [result_of(run, seed) for seed, run in enumerate(retrains)]}
    for name in [name for name in runs if name != "retrain"]:
        pairs = enumerate(zip(runs[name], retrains, strict=True))
        results[name] = [against(run, retrain, split, seed) for seed, (run, retrain) in pairs]
    outputs = {name: [outputs_of(run, split) for run in each] for name, each in runs.items()}
    rows, floor = rows_of(results, outputs, trials, split), noise_floor(results["retrain"])
    request, original = split.requests[-1], results["retrain"][0].metrics.before
    assert original is not None  # a Retrain says what it was made from
    return Table(
        request=request.kind,
        detail={k: tuple(v) if isinstance(v, list) else v for k, v in request.detail.items()},
        parts={part: len(index) for part, index in split.measured().items()},
        seeds=len(retrains),
        original=original,
        failed={},
        rows=rows,
        noise_floor=floor,
        ranking=ranking(rows[1:], floor),
        retired=len(request.retired),
    )


def refuse_failed(*tables: Table) -> None:
    """Raise if a method of a comparison failed; the tables are written by then."""
    failed = list(dict.fromkeys(name for table in tables for name in table.failed))
    if failed:
        raise Failure(
            f"Failed: {', '.join(failed)}; everything else is kept, and the same command tries "
            "again."
        )


def planned(config: CompareConfig) -> tuple[Source | None, dict[str, Settings]]:
    """Where settings come from, and each method's; raises what is wrong without an original."""
    if config.tune and config.settings_from:
        raise UserError(
            f"--tune {config.tune} searches settings and --settings-from gives them; leave one out."
        )
    if config.tune:
        need_optuna()
    source = Source.read(config.settings_from) if config.settings_from else None
    return source, {n: settings_given(config, n, source) for n in ("retrain", *config.names)}


def settings_given(config: CompareConfig, name: str, source: Source | None) -> Settings:
    """A method's settings before any search; those of a flag or a variant win over a table's."""
    from_table = source.settings[source.row(name)] if source and name != "retrain" else {}
    return {**from_table, **config.settings_for(name)}


def check(config: CompareConfig, by_method: Mapping[str, Settings]) -> str:
    """Raise whatever is wrong before anything is made; the digest of the samples asked for."""
    origin = Run.open(config.run)
    origin.check_model()
    data, columns = data_config(origin, **config.changed), config.where is not None
    split = add_request(located(origin, data, config.data_path, columns=columns)[1], config)
    if not split.requests[-1].ids:
        raise UserError(
            "There is nothing to compare: none of the samples that are asked for was trained on, "
            "so that there is nothing to forget; `qunlearn forget` retires them."
        )
    check_test(split)
    recipe, started = recipe_of(origin), config.retrains_from is not None
    for name, settings in by_method.items():
        method = find_method(variant(name)[0])
        settings_of(method, {**inherited(recipe, method, started), **settings})
    for seed in range(config.seeds if started else 0):
        retrain = {**config.origin(), "method": "retrain", **start_of(config, seed)}
        check_start(ForgetConfig.parse(retrain), origin, split)
    if not by_method.keys() - {"retrain"}:
        raise UserError("There is nothing to compare with Retrain; name a method with --methods.")
    return request_digest(split)


def against(run: Run, retrain: Run, split: Split, seed: int) -> CellResult:
    """A cell's result, compared with the Retrain of its seed."""
    result = result_of(run, seed)
    scores = scores_of(outputs_of(run, split), split, outputs_of(retrain, split))
    return replace(result, metrics=replace(result.metrics, **vars(scores)))


def _retrain(outcome: Run | Failure) -> Run:
    """A Retrain; without it there is nothing to compare with."""
    if isinstance(outcome, Failure):
        raise Failure(f"Retrain, which methods are compared with, failed; {outcome}")
    return outcome
