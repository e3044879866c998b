"""The plan of a pool: which network is trained on which samples, and which it unlearns.

Of a fixed set of candidates every network has about a third in, a third out and a third that is in
and then unlearned. Each three networks in a row share the three states of a sample among them, by
chance; so every sample has as many networks of each state, and a larger pool begins with the
networks of a smaller one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from qunlearn.audit.row import NotApplicable
from qunlearn.data import Split
from qunlearn.data.draw import generator
from qunlearn.errors import UserError

IN, OUT, UNLEARNED = 0, 1, 2
"""What a sample is to a network of the pool."""

MOST_MODELS = 10_000
"""A pool may have so many networks."""

BLOCK = 3
"""So many networks in a row share the three states of a sample."""


def states_of(groups: Sequence[int], models: int, seed: int = 0) -> Tensor:
    """The state of each candidate in each network, networks × candidates.

    Candidates of one group have the same state everywhere, as those of one request would.

    >>> states = states_of([0, 1, 2, 2], models=6)
    >>> (states[:3].sort(0).values == torch.tensor([[0], [1], [2]])).all()
    tensor(True)
    >>> bool((states[:, 2] == states[:, 3]).all())
    True
    """
    labels, member = np.unique(np.asarray(groups), return_inverse=True)
    blocks = []
    for block in range(-(-models // BLOCK)):
        chance = generator("pool", seed, block)
        blocks.append(np.argsort(chance.random((BLOCK, len(labels))), axis=0)[:, member])
    return torch.from_numpy(np.concatenate(blocks)[:models])


def half_of(models: int) -> Tensor:
    """Which of two halves each network is in; blocks stay together, so that halves are balanced.

    >>> half_of(7).tolist()
    [0, 0, 0, 1, 1, 1, 0]
    """
    return torch.arange(models) // BLOCK % 2


@dataclass(frozen=True, eq=False)
class PoolPlan:
    """Which samples a pool is about, and what each is to each network.

    Attributes:
        split: The original's split; its retained samples are what networks are trained on.
        base: The samples that are in every network.
        candidates: The samples whose state differs, ascending.
        groups: The group of each candidate; a group has one state.
        models: How many networks.
        seed: Draws the states.
        training: How a network is trained: the settings that identify the pool.
    """

    split: Split
    base: Tensor
    candidates: Tensor
    groups: tuple[int, ...]
    models: int
    seed: int
    training: Mapping[str, object]

    @cached_property
    def states(self) -> Tensor:
        """Networks × candidates."""
        return states_of(self.groups, self.models, self.seed)

    @cached_property
    def digest(self) -> str:
        """What identifies the pool, whatever its size: the samples, their groups, the training."""
        names = self.split.data.ids
        content = {
            "base": [names[row] for row in self.base.tolist()],
            "candidates": [names[row] for row in self.candidates.tolist()],
            "groups": self.groups,
            "seed": self.seed,
            "training": dict(self.training),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def part(self, number: int, state: int) -> Tensor:
        """The candidates that have a state in a network."""
        return self.candidates[self.states[number] == state]

    def split_of(self, number: int) -> Split:
        """What a network is trained on; candidates that are out are its test part."""
        seen = torch.cat([self.base, self.part(number, IN), self.part(number, UNLEARNED)])
        unseen = self.part(number, OUT)
        return replace(
            self.split,
            requests=(),
            train=seen.sort().values,
            test=unseen,
            erased={},
            retired={},
        )

    def ids(self, number: int) -> list[str]:
        """The ids that a network unlearns."""
        return [self.split.data.ids[row] for row in self.part(number, UNLEARNED).tolist()]


def drawn_plan(
    split: Split,
    *,
    models: int,
    share: float,
    subset: int | None = None,
    request: Tensor | None = None,
    seed: int = 0,
    training: Mapping[str, object],
) -> PoolPlan:
    """Draw the candidates of a pool.

    Args:
        split: The original's split.
        models: How many networks.
        share: The share of the samples that are candidates.
        subset: Train on so many of the retained samples only.
        request: The samples of a coherent request, which join the candidates as one group.
        seed: Draws the states.
        training: How a network is trained.
    """
    total = len(split.retain)
    if subset is not None and subset >= total:
        raise UserError(
            f"--subset {subset} is no less than the {total} samples that the network was trained "
            "on; leave it out."
        )
    # A random request with the split's seed draws in the same order: it is among the candidates.
    base = split.retain
    if subset is not None:
        base = split.forget_random(subset / total).forget
    drawn = split.forget_random(share * len(base) / total).forget
    together = torch.empty(0, dtype=torch.int64) if request is None else request
    base, candidates = _union(base, together), _union(drawn, together)
    rest = base[~torch.isin(base, candidates)]
    if not len(rest) or len(candidates) < MIN_CANDIDATES:
        raise NotApplicable(
            f"The pool has {len(candidates)} candidates among {len(base)} samples; choose "
            f"--candidates so that there are {MIN_CANDIDATES} or more, and others beside them."
        )
    member = torch.isin(candidates, together)
    groups = torch.where(member, -1, torch.arange(len(candidates))).tolist()
    return PoolPlan(split, rest, candidates, tuple(groups), models, seed, training)


def _union(first: Tensor, second: Tensor) -> Tensor:
    """The samples of both, each once, ascending."""
    return torch.tensor(sorted({*first.tolist(), *second.tolist()}), dtype=torch.int64)


MIN_CANDIDATES = 30
"""The tenth that is most exposed then has three samples, one for each state."""
