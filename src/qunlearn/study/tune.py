"""Searching a method's settings within its published range, on one seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qunlearn.errors import Failure, UserError
from qunlearn.methods import Range, find_method
from qunlearn.metrics import average_gap
from qunlearn.runs.metrics import metrics_of
from qunlearn.store.run import Run
from qunlearn.study.cells import Cells, run_cells
from qunlearn.study.config import Settings, variant

SPREAD = 8
"""How many trials are spread over the range before optuna draws conclusions from them."""


def tuned(
    cells: Cells, retrain: Run, whole_classes: bool, job: tuple[str, Settings]
) -> tuple[Settings, int]:
    """The settings that were best, and how many trials it took.

    The first trial is the default's, some more are spread over the range, the others are optuna's.
    `job` is a method's name with the settings that are given. Finished trials are kept: a search
    that was interrupted, or is to have more trials, is resumed. The best trial is the
    method's cell of seed 0 at the same time: nothing is trained twice.
    """
    name, given = job
    count, select = cells.config.tune, cells.config.select
    method = find_method(variant(name)[0])
    searched = {k: v for k, v in method.config.search.items() if k not in given}
    if not searched:
        return given, 0
    optuna = need_optuna()
    space = {
        k: optuna.distributions.FloatDistribution(v.low, v.high, log=v.log)
        for k, v in searched.items()
    }
    study = optuna.create_study()
    runs, failure = {}, None
    for number in range(count):
        study.sampler = optuna.samplers.TPESampler(seed=number)  # so that it can go on from here
        if number == 0:
            study.enqueue_trial({k: method.config.model_fields[k].default for k in searched})
        elif number < SPREAD:
            study.enqueue_trial(spread(number, searched))
        trial = study.ask(space)
        cell = cells.trial(name, {**given, **trial.params}, number)
        (outcome,) = run_cells([cell], 1, f"{name}, trial {number + 1} of {count}")
        if isinstance(outcome, Failure):  # a rate at which it explodes is a trial all the same
            failure = outcome
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            runs[number] = outcome
            study.tell(trial, distance(outcome, retrain, select, whole_classes))
    if not runs:
        raise Failure(f"all {count} trials failed, the last because of {failure}")
    chosen = {**given, **study.best_params}
    first = cells.cell(name, chosen, 0)
    if not first.done:
        runs[study.best_trial.number].copy_to(first.path)
    return chosen, count


def spread(number: int, ranges: Mapping[str, Range]) -> dict[str, float]:
    """The settings of an early trial: any few of them are spread evenly over the ranges.

    Multiples of the golden ratio, and of its likes in more dimensions, modulo 1.

    >>> [round(spread(n, {"lr": Range(0.001, 0.1)})["lr"], 4) for n in (1, 2, 3)]
    [0.0172, 0.003, 0.0511]
    """
    ratio = 2.0
    for _ in range(50):  # the root of x^(d+1) = x + 1
        ratio = (1 + ratio) ** (1 / (len(ranges) + 1))
    return {
        name: each.at(number * ratio ** -(axis + 1) % 1)
        for axis, (name, each) in enumerate(ranges.items())
    }


def distance(run: Run, retrain: Run, select: str, whole_classes: bool) -> float:
    """How far a trial is from what is wanted; smaller is better.

    The oracle looks at Retrain: AG. Otherwise nothing is looked at that somebody without a Retrain
    would not have: the forget set should look as the held-out part did before anything was
    forgotten, in accuracy and confidence; what is retained and held out, as each did itself.
    """
    now = metrics_of(run)
    if select == "oracle":
        return average_gap(now.figures, metrics_of(retrain).figures)
    assert now.before is not None  # a trial says what it was made from
    parts, unseen = now.parts, now.before.parts["held_out"]
    # Of a class that is gone as a whole, nothing is right any more in a network that never saw it.
    accuracy, confidence = unseen.accuracy, unseen.confidence
    if whole_classes:
        accuracy = confidence = 0.0
    total = (
        abs(parts["forget"].accuracy - accuracy)
        + abs(now.RA - now.before.RA)
        + abs(parts["held_out"].accuracy - unseen.accuracy)
        + 100 * abs(parts["forget"].confidence - confidence)
    )
    return total / 4


def need_optuna() -> Any:
    """Optuna, or the way to get it."""
    try:
        import optuna
    except ImportError:
        raise UserError(
            "--tune needs optuna, which is not installed; run: pip install optuna."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
