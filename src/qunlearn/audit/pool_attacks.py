"""The attacks on a pool: pure functions of margins and states.

A network of the pool is attacked with the others as references, so that no figure is about samples
or networks that its own reference was chosen by.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from qunlearn.audit.pool_plan import IN, OUT, UNLEARNED, half_of
from qunlearn.data.draw import generator
from qunlearn.metrics import auc
from qunlearn.metrics.epsilon import chance_epsilon, epsilon, largest_epsilon
from qunlearn.metrics.klom import gaussian_klom
from qunlearn.metrics.likelihood import likelihood_ratio
from qunlearn.metrics.rmia import offline_ratio, rmia

TENTH = 0.1
"""The share of samples that are called most exposed."""
DRAWS = 100
"""Resamples for a standard error."""
FEWEST_PAIRED = 5
"""So many networks of each of two states are in one order by chance once in 252 times; fewer say
nothing of a request."""


@dataclass(frozen=True, eq=False)
class PoolMargins:
    """The margins of a pool's networks.

    Attributes:
        states: What each candidate is to each network, networks × candidates.
        trained: The margins on the candidates before unlearning, networks × candidates.
        unlearned: The same after unlearning.
        unseen_trained: The margins on samples that no network saw, networks × samples.
        unseen_unlearned: The same after unlearning.
    """

    states: Tensor
    trained: Tensor
    unlearned: Tensor
    unseen_trained: Tensor
    unseen_unlearned: Tensor

    def of(self, networks: Tensor) -> PoolMargins:
        """The same of some networks."""
        return PoolMargins(*(getattr(self, name)[networks] for name in self.__dataclass_fields__))

    def at(self, samples: Tensor) -> PoolMargins:
        """The same of some candidates."""
        return replace(
            self,
            states=self.states[:, samples],
            trained=self.trained[:, samples],
            unlearned=self.unlearned[:, samples],
        )

    def where(self, values: Tensor, state: int, without: int | None = None) -> Tensor:
        """Values of the networks that have a state; NaN elsewhere, and in the network `without`."""
        values = torch.where(self.states == state, values.double(), torch.nan)
        if without is not None:
            values[without] = torch.nan
        return values

    def __len__(self) -> int:
        return len(self.states)


@dataclass(frozen=True)
class Estimate:
    """A value and its standard error.

    Attributes:
        value: The value.
        error: Its standard error.
        freedom: Degrees of freedom of the error; one less than there are networks if None.
    """

    value: float
    error: float
    freedom: int | None = None


def lira_scores(pool: PoolMargins) -> Tensor:
    """U-LiRA's score of each candidate in each network, with the other networks as references."""
    return torch.stack(
        [
            likelihood_ratio(
                pool.unlearned[number],
                pool.where(pool.unlearned, UNLEARNED, number),
                pool.where(pool.unlearned, OUT, number),
            )
            for number in range(len(pool))
        ]
    )


def rmia_scores(pool: PoolMargins) -> Tensor:
    """RMIA's score, with the networks that never saw a candidate as references."""
    rows = []
    for number in range(len(pool)):
        others = torch.arange(len(pool)) != number
        references = pool.where(pool.trained.sigmoid(), OUT, number)
        ratio = offline_ratio(pool.unlearned[number].sigmoid(), references)
        unseen = pool.unseen_trained[others].sigmoid()
        rows.append(rmia(ratio, offline_ratio(pool.unseen_unlearned[number].sigmoid(), unseen)))
    return torch.stack(rows)


def exposed(pool: PoolMargins, share: float = TENTH) -> Tensor:
    """The most exposed candidates, for each network as the other half of the pool tells them.

    Exposed is a sample whose margin is larger in networks that were trained on it than in those
    that never saw it. Networks × candidates, true where a candidate is among them.
    """
    half, count = half_of(len(pool)), max(1, round(share * pool.states.shape[1]))
    mask = torch.zeros_like(pool.states, dtype=torch.bool)
    for number in (0, 1):
        other = pool.of(half != number)
        seen = (other.states == IN) | (other.states == UNLEARNED)
        inside = torch.where(seen, other.trained.double(), torch.nan).nanmean(0)
        effect = inside - other.where(other.trained, OUT).nanmean(0)
        top = effect.nan_to_num(-math.inf).topk(count).indices
        mask[(half == number).nonzero(), top] = True
    return mask


def network_auc(scores: Tensor, states: Tensor, mask: Tensor) -> Tensor:
    """AUC in each network, of unlearned against unseen candidates; NaN where one is missing."""
    values = []
    for row, state, chosen in zip(scores, states, mask, strict=True):
        gone, unseen = row[(state == UNLEARNED) & chosen], row[(state == OUT) & chosen]
        values.append(auc(gone, unseen) if len(gone) and len(unseen) else math.nan)
    return torch.tensor(values, dtype=torch.float64)


def attack_auc(
    pool: PoolMargins, scores: Tensor, mask: Tensor | None = None, seed: int = 0
) -> Estimate:
    """The mean AUC over the networks; its error by resampling networks and samples."""
    mask = torch.ones_like(pool.states, dtype=torch.bool) if mask is None else mask
    value = float(network_auc(scores, pool.states, mask).nanmean())
    chance, (networks, samples) = generator("pool auc", seed), pool.states.shape
    drawn = []
    for _ in range(DRAWS):
        rows = torch.from_numpy(chance.integers(0, networks, networks))
        columns = torch.from_numpy(chance.integers(0, samples, samples))
        part = (each[rows][:, columns] for each in (scores, pool.states, mask))
        drawn.append(float(network_auc(*part).nanmean()))
    return Estimate(value, float(torch.tensor(drawn).double().nan_to_num(0.5).std()))


PairScore = Callable[[PoolMargins, int, int], tuple[Tensor, Tensor]]
"""The scores of samples in a network that unlearned them, and in one that never saw them, with all
other networks as references."""


def lira_pair(pool: PoolMargins, gone: int, unseen: int) -> tuple[Tensor, Tensor]:
    """U-LiRA's scores in two networks."""
    references = (
        pool.where(pool.unlearned, UNLEARNED, gone),
        pool.where(pool.unlearned, OUT, unseen),
    )
    first, second = (
        likelihood_ratio(pool.unlearned[number], *references) for number in (gone, unseen)
    )
    return first, second


def rmia_pair(pool: PoolMargins, gone: int, unseen: int) -> tuple[Tensor, Tensor]:
    """RMIA's scores in two networks."""
    rows = torch.arange(len(pool))
    others = pool.unseen_trained[(rows != gone) & (rows != unseen)].sigmoid()
    references = pool.where(pool.trained.sigmoid(), OUT, unseen)

    def score(number: int) -> Tensor:
        ratio = offline_ratio(pool.unlearned[number].sigmoid(), references)
        return rmia(ratio, offline_ratio(pool.unseen_unlearned[number].sigmoid(), others))

    return score(gone), score(unseen)


def request_auc(pool: PoolMargins, score: PairScore) -> Estimate:
    """How well a score tells networks that unlearned a request from those that never saw it.

    All samples of a coherent request have one state in a network, so that networks are compared,
    sample by sample. Neither of a pair is a reference: a network that its own reference is without
    looks unlike that. The error is DeLong's over networks, since what one network does to all
    samples of the request is one draw. By as much as the AUC is below chance, the references err.
    """
    states = pool.states[:, 0]
    gone, unseen = ((states == state).nonzero().flatten().tolist() for state in (UNLEARNED, OUT))
    fewest = min(len(gone), len(unseen))
    if fewest < FEWEST_PAIRED:
        return Estimate(math.nan, math.nan)
    rows = []
    for number in gone:
        pairs = [score(pool, number, other) for other in unseen]
        ranks = [(ours > theirs).double() + (ours == theirs).double() / 2 for ours, theirs in pairs]
        rows.append([float(rank.mean()) for rank in ranks])
    above = torch.tensor(rows, dtype=torch.float64)
    error = math.sqrt(sum(float(above.mean(at).var()) / above.shape[1 - at] for at in (0, 1)))
    value = float(above.mean())
    return Estimate(value, max(error, 0.5 - value), fewest - 1)


def klom_of(pool: PoolMargins) -> float:
    """KLoM, over all candidates, of networks after unlearning against those that never saw them."""
    return gaussian_klom(pool.where(pool.unlearned, UNLEARNED), pool.where(pool.trained, OUT))


def halved_klom(pool: PoolMargins, mask: Tensor, half: Tensor) -> float:
    """KLoM of samples that each half of the pool chose for the other."""
    values = []
    for number in (0, 1):
        rows = (half == number).nonzero().flatten()
        values.append(klom_of(pool.of(rows).at(mask[rows[0]].nonzero().flatten())))
    return sum(values) / 2


def epsilons(pool: PoolMargins) -> Tensor:
    """ε of each candidate, at most as large as so many networks can show."""
    gone, unseen = pool.where(pool.unlearned, UNLEARNED), pool.where(pool.trained, OUT)
    counts = zip((~gone.isnan()).sum(0).tolist(), (~unseen.isnan()).sum(0).tolist(), strict=True)
    most = torch.tensor([largest_epsilon(*pair) for pair in counts], dtype=torch.float64)
    return torch.minimum(epsilon(gone, unseen), most)


def epsilon_room(unlearned: int, retrained: int) -> float:
    """How far beyond chance ε can be at most, with so many networks.

    >>> epsilon_room(5, 5) < epsilon_room(40, 40)
    True
    """
    most = largest_epsilon(unlearned, retrained)
    return most - float(chance_epsilon(unlearned, retrained).clamp_max(most).mean())


def epsilon_excess(pool: PoolMargins) -> float:
    """The mean ε beyond what networks that do not differ would show."""
    gone, unseen = ((pool.states == state).sum(0).tolist() for state in (UNLEARNED, OUT))
    expected = 0.0
    for (first, second), number in Counter(zip(gone, unseen, strict=True)).items():
        by_chance = chance_epsilon(first, second).clamp_max(largest_epsilon(first, second))
        expected += number * float(by_chance.nanmean())
    return float(epsilons(pool).nanmean()) - expected / len(gone)


def jackknifed(pool: PoolMargins, statistic: Callable[[Tensor], float]) -> Estimate:
    """A statistic of networks, given by number; its error by leaving out one network at a time."""
    count = len(pool)
    every = torch.arange(count)
    without = torch.tensor([statistic(every[every != number]) for number in range(count)])
    spread = float((without.double() - without.double().mean()).square().sum())
    return Estimate(statistic(every), math.sqrt((count - 1) / count * spread))
