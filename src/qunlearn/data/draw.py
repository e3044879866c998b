"""Reproducible choices: generators and permutations determined by a key, even samples."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def generator(*key: int | str) -> np.random.Generator:
    """An independent random generator for every key.

    The complete key is hashed, so that keys such as (seed 1, epoch 2) and (seed 2, epoch 1) are
    independent; sums of seeds would collide.

    >>> int(generator("order", 0, 1).integers(1000)) == int(generator("order", 0, 1).integers(1000))
    True
    """
    return np.random.default_rng(int.from_bytes(_digest(16, *key), "little"))


def shuffled(ids: Sequence[str], *key: int | str) -> list[int]:
    """A random permutation of `ids`, as positions, determined by the key and each id.

    Taking the first k is a draw without replacement. Each id is sorted by its own hash, so the
    draw does not depend on the order of the ids, and removing samples leaves the others in order.

    >>> shuffled(["a", "b", "c"], "example", 1)
    [2, 0, 1]
    """
    salt = _digest(32, *key)

    def place(position: int) -> bytes:
        return hashlib.blake2b(ids[position].encode(), digest_size=16, key=salt).digest()

    return sorted(range(len(ids)), key=place)


def spread(index: Tensor, count: int) -> Tensor:
    """At most `count` entries, evenly over the whole: neighbours may be alike.

    >>> spread(torch.arange(10), 3)
    tensor([0, 3, 6])
    """
    count = min(count, len(index))
    return index[torch.arange(count) * len(index) // max(count, 1)]


def _digest(size: int, *key: int | str) -> bytes:
    plain = tuple(part if isinstance(part, str) else int(part) for part in key)
    # repr keeps 1 apart from "1", and the separators keep (1, 23) apart from (12, 3).
    return hashlib.blake2b(repr(plain).encode(), digest_size=size).digest()
