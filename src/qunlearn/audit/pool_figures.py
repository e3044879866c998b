"""The figures of a pool, each with its interval and a verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from qunlearn.audit.pool_attacks import (
    Estimate,
    PoolMargins,
    attack_auc,
    epsilon_excess,
    epsilon_room,
    exposed,
    halved_klom,
    jackknifed,
    klom_of,
    lira_pair,
    lira_scores,
    request_auc,
    rmia_pair,
    rmia_scores,
)
from qunlearn.audit.pool_plan import MOST_MODELS, OUT, half_of
from qunlearn.audit.row import LEVEL, Verdict
from qunlearn.data.draw import generator
from qunlearn.metrics import auc
from qunlearn.metrics.bootstrap import Interval
from qunlearn.metrics.klom import moments
from qunlearn.metrics.rmia import offline_ratio, rmia

EPSILON = "ε beyond chance"
TOLERANCE = {"U-LiRA": 0.55, "RMIA": 0.55, "KLoM": 0.05, EPSILON: 0.15}
"""Up to which value a network counts as one that never saw the samples: AUC, nats and ε.

KLoM and ε compare with networks that were trained on a few more samples than a Retrain would be,
which makes a difference of its own."""

ALL, EXPOSED, REQUEST = "all samples", "most exposed tenth", "the request"
DRAWS = 100
HALVES = 12
"""With fewer networks, half a pool has too few of each state for a variance, one left out."""


@dataclass(frozen=True)
class PoolFigure:
    """One attack on some of the samples.

    Attributes:
        attack: Its name.
        samples: On which samples.
        value: The AUC of U-LiRA and RMIA; KLoM in nats; ε beyond what chance would show. None if
            the networks are too few for any.
        interval: Where the true value lies; None likewise.
        tolerance: Up to which value a network counts as one that never saw the samples.
        verdict: "pass" if the interval is within the tolerance, "fail" if it is beyond.
        needed: If it cannot be told: how many networks would do, if the value stays; None if more
            than a pool may have.
    """

    attack: str
    samples: str
    value: float | None
    interval: Interval | None
    tolerance: float
    verdict: Verdict
    needed: int | None = None


def judged(
    attack: str, samples: str, estimate: Estimate, models: int, tests: int, level: float = LEVEL
) -> PoolFigure:
    """A figure with its interval and verdict.

    The probability that any of so many `tests` fails by chance is at most `level`.
    """
    from scipy.stats import t

    freedom = models - 1 if estimate.freedom is None else estimate.freedom
    half = float(t.ppf(1 - level / tests, freedom)) * estimate.error
    value, limit = estimate.value, TOLERANCE[attack]
    most = math.inf if attack in ("KLoM", EPSILON) else 1.0
    if not math.isfinite(half) or not math.isfinite(value):
        return PoolFigure(attack, samples, None, None, limit, "cannot be told")
    interval = Interval(max(value - half, 1 - most), min(value + half, most))
    if interval.low > limit:
        return PoolFigure(attack, samples, value, interval, limit, "fail")
    if interval.high <= limit:
        return PoolFigure(attack, samples, value, interval, limit, "pass")
    apart = abs(limit - value)
    needed = models * (half / apart) ** 2 if apart > 0 else math.inf
    enough = math.ceil(needed) if needed <= MOST_MODELS else None
    return PoolFigure(attack, samples, value, interval, limit, "cannot be told", enough)


def method_figures(
    pool: PoolMargins, request: Tensor | None = None, level: float = LEVEL, seed: int = 0
) -> tuple[PoolFigure, ...]:
    """What the attacks tell of a method over the pool: unlearned against never seen.

    Args:
        pool: The pool's margins.
        request: Which candidates are those of a coherent request, true where; None if there is
            none.
        level: The probability of a false "fail" over all figures.
        seed: Draws resamples.
    """
    scores = {"U-LiRA": lira_scores(pool), "RMIA": rmia_scores(pool)}
    top, half, models = exposed(pool), half_of(len(pool)), len(pool)
    estimates = {(name, ALL): attack_auc(pool, score, seed=seed) for name, score in scores.items()}
    estimates["KLoM", ALL] = jackknifed(pool, lambda rows: klom_of(pool.of(rows)))
    estimates[EPSILON, ALL] = jackknifed(pool, lambda rows: epsilon_excess(pool.of(rows)))
    for name, score in scores.items():
        estimates[name, EXPOSED] = attack_auc(pool, score, top, seed)
    if models >= HALVES:
        estimates["KLoM", EXPOSED] = jackknifed(
            pool, lambda rows: halved_klom(pool.of(rows), top[rows], half[rows])
        )
    if request is not None:
        some = pool.at(request.nonzero().flatten())
        estimates["U-LiRA", REQUEST] = request_auc(some, lira_pair)
        estimates["RMIA", REQUEST] = request_auc(some, rmia_pair)
        estimates["KLoM", REQUEST] = jackknifed(pool, lambda rows: klom_of(some.of(rows)))
    figures = (
        judged(*key, estimate, models, len(estimates), level) for key, estimate in estimates.items()
    )
    return tuple(_with_room(figure, models) for figure in figures)


def _with_room(figure: PoolFigure, models: int) -> PoolFigure:
    """A figure, but ε passes only where so many networks could have shown twice the tolerance."""
    if figure.attack != EPSILON or figure.verdict != "pass":
        return figure
    sizes = [models, *(2**power for power in range(4, 13) if 2**power > models)]
    enough = next((n for n in sizes if epsilon_room(n // 3, n // 3) >= 2 * figure.tolerance), None)
    if enough == models:
        return figure
    return replace(figure, verdict="cannot be told", needed=enough)


def run_figures(
    pool: PoolMargins,
    margins: Tensor,
    columns: Tensor,
    unseen: Tensor,
    level: float = LEVEL,
    seed: int = 0,
) -> tuple[PoolFigure, ...]:
    """What the attacks tell of one network: its forgotten samples against samples it never saw.

    Each sample is compared with what networks say that never saw it, so a network of another size
    than the pool's can be judged, too: whatever it does to all samples cancels.

    Args:
        pool: The pool's margins.
        margins: The network's margins on the forgotten samples that are candidates.
        columns: Which candidates these are.
        unseen: Its margins on the samples that no network saw.
        level: The probability of a false "fail" over both figures.
        seed: Draws resamples, of networks and of samples.
    """
    chance = generator("pool run", seed)
    trained, states = pool.trained[:, columns], pool.states[:, columns]
    networks, gone, others = len(pool), len(columns), len(unseen)

    def values(rows: Tensor, first: Tensor, second: Tensor) -> tuple[float, float]:
        references = torch.where(
            states[rows][:, first] == OUT, trained[rows][:, first].double(), torch.nan
        )
        never = pool.unseen_trained[rows][:, second].double()
        usable = ~references.isnan().all(0)
        references, mine = references[:, usable], margins[first][usable].double()
        theirs = unseen[second].double()
        lira = auc(_distance(mine, references), _distance(theirs, never))
        ratio = offline_ratio(mine.sigmoid(), references.sigmoid())
        population = offline_ratio(theirs.sigmoid(), never.sigmoid())
        # Half of the unseen samples are the population of the other half.
        even, odd = population[::2], population[1::2]
        against = torch.cat([rmia(even, odd), rmia(odd, even)])
        return lira, auc((rmia(ratio, even) + rmia(ratio, odd)) / 2, against)

    every = values(torch.arange(networks), torch.arange(gone), torch.arange(others))
    sizes = (networks, gone, others)
    drawn = torch.tensor(
        [
            values(*(torch.from_numpy(chance.integers(0, size, size)) for size in sizes))
            for _ in range(DRAWS)
        ],
        dtype=torch.float64,
    )
    names = ("U-LiRA", "RMIA")
    return tuple(
        judged(name, "this run", Estimate(value, float(drawn[:, at].std())), networks, 2, level)
        for at, (name, value) in enumerate(zip(names, every, strict=True))
    )


def _distance(values: Tensor, references: Tensor) -> Tensor:
    """How far each margin is above its references', in standard deviations."""
    mean, variance, count = moments(references)
    return (values - mean) / (math.sqrt(variance) * (1 + 1 / count).sqrt())
