"""Searching a method's settings within its published range, on one seed."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from qunlearn.errors import Failure, UserError
from qunlearn.methods import Range, find_method
from qunlearn.metrics import average_gap
from qunlearn.runs.metrics import metrics_of
from qunlearn.store.files import as_written
from qunlearn.store.lock import is_locked, locked_in_turn
from qunlearn.store.run import Run
from qunlearn.store.study import journal_path
from qunlearn.study.cells import Cell, Cells, failure_of
from qunlearn.study.config import SEARCHES, Settings, folder_name, variant
from qunlearn.study.executors.base import Executor, Finished
from qunlearn.study.progress import StudyProgress

SPREAD = 8
"""How many trials are spread over the range before optuna draws conclusions from them."""


class Search:
    """The search for one method's settings: asks for a trial, is told its outcome, asks again.

    The first trial is the default's, some more are spread over the range, the others are optuna's.
    Trials are in a journal in the study's folder, from which an interrupted search is resumed, and
    through which several machines share one search. A trial's figures come from its run.

    Args:
        cells: The cells of the study.
        retrain: The Retrain of seed 0.
        whole_classes: Whether whole classes are forgotten.
        name: The method.
        fixed: Its settings that are not searched.
    """

    def __init__(self, cells: Cells, retrain: Run, whole_classes: bool, name: str, fixed: Settings):
        self.cells, self.name, self._fixed = cells, name, fixed
        self._retrain, self._whole_classes = retrain, whole_classes
        method = find_method(variant(name)[0])
        self._ranges = {k: v for k, v in method.config.search.items() if k not in fixed}
        self._defaults = {k: method.config.model_fields[k].default for k in self._ranges}
        self.count = cells.config.tune if self._ranges else 0
        self.number = 0
        self._numbers, self._deferred = deque(range(self.count)), set[int]()
        self.runs: dict[int, Run] = {}
        self._settings: dict[int, Settings] = {}
        self._distances: dict[int, float] = {}
        self._failure: Failure | None = None
        self._study: Any = self._opened() if self._ranges else None

    def _opened(self) -> Any:
        """The study in its journal; one of its own for everything that a distance depends on."""
        optuna, config = need_optuna(), self.cells.config
        method = find_method(variant(self.name)[0])
        depends: dict[str, object] = {
            "origin": Run.open(config.run).info.model_sha256,
            "request": self.cells.request,
            "retrain": self._retrain.info.model_sha256,
            "method": [self.name, method.revision],
            "given": {name: str(value) for name, value in sorted(self._fixed.items())},
            "ranges": {name: [v.low, v.high, v.log] for name, v in self._ranges.items()},
            "select": config.select,
        }
        text = json.dumps(depends, sort_keys=True)
        path = journal_path(self.cells.home / SEARCHES / f"{folder_name(self.name)}.jsonl")
        journal = optuna.storages.journal
        backend = journal.JournalFileBackend(str(path), journal.JournalFileOpenLock(str(path)))
        with as_written(path):
            return optuna.create_study(
                storage=optuna.storages.JournalStorage(backend),
                study_name=hashlib.sha256(text.encode()).hexdigest(),
                load_if_exists=True,
            )

    def next(self) -> Cell | None:
        """The next trial that is to be made; None when there is none.

        One that another machine is making comes last: by then it may be done.
        """
        while self._numbers:
            self.number = self._numbers.popleft()
            cell = self._cell(self._trial(self.number))
            cell.check()
            if cell.done:
                self.tell(cell, None)
            elif self.number not in self._deferred and is_locked(cell.path):
                self._deferred.add(self.number)
                self._numbers.append(self.number)
            else:
                return cell
        return None

    def _trial(self, number: int) -> Any:
        """The trial of a number: from the journal, or a new one."""
        optuna, study = need_optuna(), self._study
        with locked_in_turn(self.cells.home / SEARCHES):
            trials = study.get_trials(deepcopy=False)
            earlier: Any = trials[number] if number < len(trials) else None
            if earlier is not None and self._ranges.keys() <= earlier.params.keys():
                return earlier
            study.sampler = optuna.samplers.TPESampler(seed=number)  # so that it can be resumed
            if earlier is None and number == 0:
                study.enqueue_trial(self._defaults)
            elif earlier is None and number < SPREAD:
                study.enqueue_trial(spread(number, self._ranges))
            # A search that was killed may have left a trial without its settings.
            begun = earlier is not None and earlier.state == optuna.trial.TrialState.RUNNING
            trial = optuna.trial.Trial(study, earlier._trial_id) if begun else study.ask()
            for name, limits in self._ranges.items():
                trial.suggest_float(name, limits.low, limits.high, log=limits.log)
            return trial

    def _cell(self, trial: Any) -> Cell:
        """The cell of a trial; settings outside the range are no trial of this search."""
        settings = {name: trial.params.get(name) for name in self._ranges}
        for name, value in settings.items():
            limits = self._ranges[name]
            if not isinstance(value, float) or not limits.low <= value <= limits.high:
                raise UserError(
                    f"The journal of the search for {self.name} has {name} = {value!r}, which is "
                    f"outside its range; delete the folder {SEARCHES!r} of the study."
                )
        self._settings[self.number] = {**self._fixed, **settings}
        return self.cells.trial(self.name, self._settings[self.number], self.number)

    def tell(self, cell: Cell, failure: Failure | None) -> None:
        """Take note of what came of the last trial; one that failed is a trial all the same."""
        optuna = need_optuna()
        if failure is not None:
            self._failure = failure
            outcome: dict[str, object] = {"state": optuna.trial.TrialState.FAIL}
        else:
            run = self.runs[self.number] = Run.open(cell.path)
            select = self.cells.config.select
            value = distance(run, self._retrain, select, self._whole_classes)
            self._distances[self.number] = value
            outcome = {"values": value}
        self._study.tell(self.number, skip_if_finished=True, **outcome)

    def result(self) -> tuple[Settings, int]:
        """The settings that were best, and how many trials it took.

        The best trial is the method's cell of seed 0 at the same time: nothing is trained twice.
        """
        if self._study is None:
            return self._fixed, 0
        if not self.runs:
            raise Failure(f"all {self.count} trials failed, the last because of {self._failure}")
        best = min(self._distances, key=lambda number: (self._distances[number], number))
        first = self.cells.cell(self.name, self._settings[best], 0)
        if not first.done:
            self.runs[best].copy_to(first.path)
        return self._settings[best], self.count


def run_searches(
    searches: Sequence[Search], executor: Executor
) -> dict[str, tuple[Settings, int] | Failure]:
    """Each method's best settings; the searches run side by side, each trial by trial."""
    total = sum(search.count for search in searches)
    begun = {search.name: search.next() for search in searches}
    asking = {cell.path: (search, cell) for search in searches if (cell := begun[search.name])}
    done = sum(len(search.runs) for search in searches)
    with StudyProgress("tuning", total, done, executor.out_of_process) as progress:
        executor.submit([cell for cell in begun.values() if cell])
        while asking:
            for event in executor.events():
                progress.add(event)
                if not isinstance(event, Finished):
                    continue
                search, cell = asking.pop(event.job.path)
                search.tell(cell, failure_of(event))
                if following := search.next():
                    asking[following.path] = search, following
                    executor.submit([following])
            progress.refresh()
    return {search.name: _result(search) for search in searches}


def _result(search: Search) -> tuple[Settings, int] | Failure:
    try:
        return search.result()
    except Failure as error:
        return error


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
            "--tune needs optuna, which is not installed; run: pip install 'qunlearn[tune]'."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
