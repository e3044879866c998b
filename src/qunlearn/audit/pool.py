"""Whether single samples can be told from samples never seen, with a pool of networks to compare.

The pool is made by `qunlearn.study.pool`; this reads what its networks answered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from qunlearn.audit.case import Case
from qunlearn.audit.pool_attacks import epsilons
from qunlearn.audit.pool_figures import PoolFigure, method_figures, run_figures
from qunlearn.audit.pool_folder import Pool, PoolConfig, pool_of
from qunlearn.audit.registry import Audit, Work, audits
from qunlearn.audit.row import LEVEL, AuditRow, Figure, NotApplicable, Verdict
from qunlearn.data import Request, Split
from qunlearn.errors import UserError
from qunlearn.methods import find_method
from qunlearn.metrics import margin
from qunlearn.metrics.epsilon import challenge_score, largest_epsilon
from qunlearn.runs.model_file import Header
from qunlearn.runs.origin import origin_of
from qunlearn.runs.provenance import request_of
from qunlearn.runs.recipe import inherited, recipe_of
from qunlearn.store.run import Run
from qunlearn.training.inference import predict

NAME = "pool"
FEWEST = 20
"""With fewer forgotten samples among the candidates, nothing is said of the run itself."""


@dataclass(frozen=True)
class PoolAudit:
    """What attacks with a pool of networks found.

    Attributes:
        method: The method that is judged.
        models: How many networks the pool has.
        candidates: How many samples are in some networks and out of others.
        unlearned: How many samples each network unlearned, on average.
        tested: How many of the candidates this run has forgotten.
        smaller: How the pool's networks are smaller than the run's, in words of settings; empty if
            they are made as the original was.
        epsilon: The median over the samples of the unlearning challenge's ε.
        epsilon_largest: The largest ε that so many networks can show.
        challenge_score: The challenge's forgetting quality, at most 1.
        figures: The attacks on the method over the pool, then on this run.
        level: The probability of a false "fail" over all figures.
    """

    method: str
    models: int
    candidates: int
    unlearned: float
    tested: int
    smaller: Mapping[str, float]
    epsilon: float
    epsilon_largest: float
    challenge_score: float
    figures: tuple[PoolFigure, ...]
    level: float = LEVEL

    @property
    def verdict(self) -> Verdict:
        """Fail if any figure fails; pass if all pass."""
        verdicts = {figure.verdict for figure in self.figures}
        if "fail" in verdicts:
            return "fail"
        return "cannot be told" if "cannot be told" in verdicts else "pass"

    @property
    def deciding(self) -> PoolFigure:
        """The figure that decided the verdict: the one furthest beyond its tolerance."""
        decided = [figure for figure in self.figures if figure.verdict == self.verdict]
        return max(decided, key=lambda f: math.inf if f.value is None else f.value / f.tolerance)

    @property
    def needed(self) -> int | None:
        """How many networks would do for a verdict on all samples and this run, if known."""
        open_ = [f.needed for f in self.figures if f.verdict == "cannot be told"]
        return None if not open_ or None in open_ else max(each for each in open_ if each)

    def row(self) -> AuditRow:
        """The outcome, without its time."""
        figure = self.deciding
        detail: dict[str, str | float] = {"attack": figure.attack, "samples": figure.samples}
        if self.verdict == "cannot be told":
            reason = "too few networks"
            detail |= {"models": self.models}
            detail |= {"needed": self.needed} if self.needed else {}
        else:
            reason = "deciding figure"
            detail |= {"tolerance": figure.tolerance}
            detail |= {} if figure.value is None else {"value": figure.value}
        return AuditRow(
            NAME,
            ("training data", f"{self.models} networks"),
            tuple(Figure(f"{f.attack}, {f.samples}", f.value, f.interval) for f in self.figures),
            self.verdict,
            reason,
            self.level,
            detail=dict(detail),
        )


def pool_for(run: Run, config: PoolConfig) -> tuple[Pool, PoolConfig, tuple[str, ...]]:
    """The pool that judges a run; its settings, and the request if its samples belong together.

    Where no folder is named, it is beside the run.
    """
    request, origin = coherent(run), origin_of(run)
    if origin is None:
        raise NotApplicable(
            f"The run that {str(run.path)!r} was made from is not available, and a pool is trained "
            "as that was; put it back in its place."
        )
    home = config.pool or run.path.with_name(f"{origin.path.name}-pool")
    config = config.model_copy(update={"pool": home})
    return pool_of(origin.path, config, request), config, request


def coherent(run: Run) -> tuple[str, ...]:
    """The ids of a run's request if they belong together, such as one user's; else none."""
    from qunlearn.data import manifest

    requests = [each for each in manifest.parse(run.split).requests if each.ids]
    last: Request | None = requests[-1] if requests else None
    if last is None:
        raise UserError(
            f"The run {str(run.path)!r} has forgotten nothing; name one that `qunlearn forget` "
            "wrote."
        )
    if last.kind == "class":
        raise NotApplicable(
            "Networks without a whole class cannot be compared with networks that unlearned some "
            "of its samples; audit class-wise forgetting by other attacks."
        )
    return () if last.kind == "random" else tuple(last.ids)


def settings_of_run(run: Run) -> tuple[str, dict[str, object]]:
    """The method of a run, and its settings beside those that follow the network's training."""
    asked, origin = request_of(run), origin_of(run)
    assert origin is not None  # seen to by `pool_for`
    usual = inherited(recipe_of(origin), find_method(asked.method))
    changed = {
        name: value
        for name, value in asked.settings.items()
        if name != "seed" and usual.get(name) != value
    }
    return asked.method, changed


def attack(case: Case, settings: PoolConfig) -> PoolAudit:
    """Judge a run, and its method, with a pool that was made before."""
    run = case.run
    if run is None:
        raise NotApplicable("A pool is trained as a run's original was; name a run folder.")
    pool, settings, request = pool_for(run, settings)
    method, chosen = settings_of_run(run)
    margins, plan, data = pool.margins(method, chosen), pool.plan, case.split.data
    named = {data.ids[row] for row in case.split.forget.tolist()}
    mine = torch.tensor([plan.split.data.ids[row] in named for row in plan.candidates.tolist()])
    columns = mine.nonzero().flatten()
    together, alone = (0.75 * LEVEL, 0.25 * LEVEL) if len(columns) >= FEWEST else (LEVEL, 0.0)
    group = mine if request else None
    figures = method_figures(margins, group, level=together, seed=settings.seed)
    if alone:
        figures += run_figures(
            margins,
            _margins(case, plan.split, plan.candidates[columns]),
            columns,
            _margins(case, plan.split, plan.split.held_out),
            level=alone,
            seed=settings.seed,
        )
    values, third = epsilons(margins), plan.models // 3
    return PoolAudit(
        method=method,
        models=plan.models,
        candidates=len(plan.candidates),
        unlearned=sum(len(plan.ids(n)) for n in range(plan.models)) / plan.models,
        tested=len(columns),
        smaller=_smaller(pool, settings),
        epsilon=float(values.nanmedian()),
        epsilon_largest=largest_epsilon(third, third),
        challenge_score=challenge_score(values[~values.isnan()]),
        figures=figures,
    )


def _margins(case: Case, split: Split, index: torch.Tensor) -> torch.Tensor:
    return margin(predict(case.model, split.data, index), split.data.labels[index])


def _smaller(pool: Pool, settings: PoolConfig) -> dict[str, float]:
    """The settings in which the pool's networks differ from the original."""
    recipe, header = recipe_of(pool.origin), Header.read(pool.origin.model_path)
    usual = {"epochs": recipe.training.get("epochs"), "width": header.model.width}
    usual["subset"] = len(pool.plan.split.retain)
    asked = {name: getattr(settings, name) for name in usual}
    return {name: float(v) for name, v in asked.items() if v is not None and v != usual[name]}


def work(case: Case, settings: PoolConfig) -> Work:
    """The statistics take seconds; the networks were made before."""
    return Work(predicted=len(case.split.forget) + len(case.split.held_out), seconds=10)


audits.register(NAME)(
    Audit(
        rank=60,
        config=PoolConfig,
        finding=PoolAudit,
        attack=attack,
        work=work,
        summary="See whether single samples give themselves away beside a pool of networks.",
        help="""Trains a pool of networks as the original was, each sample a third of the time in,
        out, and in and then unlearned by the run's method; what is there already is used again.
        Each training and each unlearning is a cell, made here or by the --executor.
        Shows how well U-LiRA, RMIA, KLoM and the unlearning challenge's ε tell unlearned samples
        from samples never seen: all of them, and the tenth that is most exposed.""",
        examples=(
            "--models 16 --epochs 20 --width 0.125",
            "--models 64 --workers 8",
            "--models 64 --executor ray --address auto",
        ),
    )
)
